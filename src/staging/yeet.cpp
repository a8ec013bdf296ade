#include "staging/yeet.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "base/failure.h"
#include "base/parallel_for.h"
#include "base/process.h"
#include "base/text.h"
#include "staging/landing.h"
#include "staging/leaders.h"
#include "staging/relay.h"
#include "staging/source.h"
#include "staging/thread_work.h"
#include "staging/tree_messages.h"

namespace athanor::staging {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kMostRounds = 3;  // sends what arrived damaged again
constexpr int kReadThreads = 4, kWriteThreads = 4;

/// What all ranks have to know before they continue, or end.
struct Verdict {
  int exit_code = 0;
  std::string failure = {};

  std::string encode() const { return fmt::format("{:3}{}", exit_code, failure); }
  static Verdict decode(const std::string& text) { return {std::stoi(text.substr(0, 3)), text.substr(3)}; }
};

Verdict verdict_of(const std::exception_ptr& failure, bool in_run) {
  const Failure description = describe_failure(failure, in_run);
  return {description.exit_code, description.message};
}

std::string expanded(std::string target, const std::string& host, int rank) {
  for (const auto& [name, value] :
       {std::pair{std::string("{host}"), host}, {std::string("{rank}"), std::to_string(rank)}})
    for (size_t at = target.find(name); at != target.npos; at = target.find(name, at + value.size()))
      target.replace(at, name.size(), value);
  return target;
}

// A folder that is sent into itself would be sent with its copy the next time, and grow with each call.
void refuse_target_within(const std::vector<std::string>& sources, const std::string& target) {
  std::error_code ignored;
  const auto to = std::filesystem::weakly_canonical(target, ignored);
  for (const std::string& source : sources) {
    const auto from = std::filesystem::weakly_canonical(source, ignored);
    const bool is_within = std::ranges::mismatch(from, to).in1 == from.end();
    ATHANOR_CHECK(!is_within || !std::filesystem::is_directory(from, ignored),
                  "--to {} is in SRC {}, which would be sent with its copy the next time; give another --to",
                  printable(target), printable(source));
  }
}

std::string words_text(const std::vector<uint64_t>& words) {
  return {reinterpret_cast<const char*>(words.data()), words.size() * sizeof(uint64_t)};
}
void read_words(const std::string& text, std::vector<uint64_t>& words) {
  ATHANOR_ASSERT(text.size() == words.size() * sizeof(uint64_t));
  std::memcpy(words.data(), text.data(), text.size());
}

/// Chunks that were damaged on the way to a rank from another: those with the most among all ranks.
struct Damage {
  int64_t number = 0;
  int to = -1, from = -1;
};

class Transfer {
 public:
  Transfer(comm::Wire& wire, const YeetRequest& request, const std::string& host,
           std::vector<std::shared_ptr<void>>& keep_alive)
      : wire_(wire), request_(request), host_(host), keep_alive_(keep_alive), messages_(wire),
        target_(expanded(request.target, host, wire.rank())), leaders_(Leaders::find(wire, host + '\0' + target_)) {}

  YeetOutcome run() {
    if (!list()) return outcome_;
    begin_ = Clock::now();
    if (!prepare()) return outcome_;
    for (int round = 0; round < kMostRounds && !to_send_.empty(); ++round) {
      send();
      if (!agree_on_what_is_left(round)) return outcome_;
    }
    finish();
    return outcome_;
  }

 private:
  bool is_root() const { return wire_.rank() == 0; }
  bool takes_part() const { return leaders_.has(wire_.rank()); }

  // Ends on all ranks if the first one has a failure. Collective.
  bool agree(const Verdict& of_root) {
    const Verdict verdict = Verdict::decode(messages_.broadcast(of_root.encode()));
    outcome_.exit_code = verdict.exit_code;
    outcome_.failure = verdict.failure;
    return verdict.exit_code == 0;
  }

  bool list() {
    Verdict verdict;
    std::string text;
    if (is_root()) {
      try {
        refuse_target_within(request_.sources, target_);
        listing_ = list_sources(request_.sources, request_.unpack, request_.chunk_bytes);
        text = encode_manifest(listing_.manifest);
      } catch (...) {
        verdict = verdict_of(std::current_exception(), false);
      }
    }
    if (!agree(verdict)) return false;
    text = messages_.broadcast(std::move(text));
    if (!is_root()) listing_.manifest = decode_manifest(text, "rank 0");
    table_.emplace(listing_.manifest);
    outcome_.bytes = listing_.manifest.total_bytes();
    for (const Entry& entry : listing_.manifest.entries) outcome_.num_files += entry.kind != EntryKind::kFolder;
    if (is_root()) reader_.emplace(listing_, *table_);
    return true;
  }

  bool prepare() {
    std::vector<HashWords> hashes;
    if (request_.compares_bytes && !share_hashes(hashes)) return false;
    lacking_ = ChunkSet(table_->size());
    guard(
        [&] {
          landing_ = std::make_unique<Landing>(listing_.manifest, *table_, target_);
          lacking_ = landing_->find_lacking(request_.compares_bytes ? &hashes : nullptr);
        },
        false);
    const Report report = merged_report();
    if (!agree(is_root() && report.num_failed() > 0 ? Verdict{report.failed()[0].exit_code, report.failure_text()}
                                                    : Verdict())) {
      outcome_.report = report;
      return false;
    }
    guard([&] { landing_->begin(); }, true);
    if (failure_.exit_code != 0) lacking_ = ChunkSet(table_->size());
    unite_lacking();
    return true;
  }

  bool share_hashes(std::vector<HashWords>& hashes) {
    hashes.resize(table_->size());
    Verdict verdict;
    if (is_root()) {
      try {
        parallel_for(kReadThreads, static_cast<int64_t>(hashes.size()), [&](int64_t chunk) {
          ChunkBuffer buffer(table_->bytes(static_cast<uint64_t>(chunk)));
          reader_->read(static_cast<uint64_t>(chunk), buffer);
          hashes[static_cast<size_t>(chunk)] = buffer.header().hash;
        });
      } catch (...) {
        verdict = verdict_of(std::current_exception(), false);
      }
    }
    if (!agree(verdict)) return false;
    std::string text(reinterpret_cast<const char*>(hashes.data()), hashes.size() * sizeof(HashWords));
    text = messages_.broadcast(std::move(text));
    std::memcpy(hashes.data(), text.data(), text.size());
    return true;
  }

  // Runs what may fail on this node alone: the failure goes into its report. Nothing on ranks that take no part.
  template <class Work>
  void guard(Work work, bool in_run) {
    if (!takes_part() || failure_.exit_code != 0) return;
    try {
      work();
    } catch (...) {
      failure_ = verdict_of(std::current_exception(), in_run);
    }
  }

  void unite_lacking() {
    const auto merge = [&](std::string& into, const std::string& other) {
      ChunkSet mine(table_->size()), theirs(table_->size());
      read_words(into, mine.words());
      read_words(other, theirs.words());
      mine.unite(theirs);
      into = words_text(mine.words());
    };
    const std::string all = messages_.broadcast(messages_.reduce(words_text(lacking_.words()), merge));
    ChunkSet united(table_->size());
    read_words(all, united.words());
    to_send_ = united.list();
  }

  void send() {
    if (!takes_part()) return;
    uint64_t total = 0;
    for (const uint64_t chunk : to_send_) total += table_->bytes(chunk);
    if (is_root()) request_.will_send(total);
    outcome_.sent_bytes += total;
    std::optional<ThreadWork> source;
    if (is_root())
      source.emplace(kReadThreads, [this](ChunkBuffer& buffer) { reader_->read(to_send_[buffer.position], buffer); });
    ThreadWork sink(std::min(kWriteThreads, cpu_count()), [this](ChunkBuffer& buffer) { landing_->write(buffer); });
    const RelayPlace place{leaders_.node_of(wire_.rank()), leaders_.count(),
                           [this](int node) { return leaders_.rank_of(node); }};
    const auto lacks = [this](uint64_t chunk) { return failure_.exit_code == 0 && lacking_.has(chunk); };
    const auto relay = std::make_shared<Relay>(
        wire_, place, RelayWork{table_->largest_bytes(), to_send_, lacks, source ? &*source : nullptr, &sink});
    keep_alive_.push_back(relay);
    IdleWait idle(100);
    uint64_t told = 0;
    while (!relay->done()) {
      relay->poll() ? idle.moved() : idle.wait();
      if (is_root() && relay->bytes_moved() > told)
        request_.has_sent(relay->bytes_moved() - std::exchange(told, relay->bytes_moved()));
    }
    take_outcome(*relay);
  }

  void take_outcome(const Relay& relay) {
    if (relay.failure()) stopped_ = verdict_of(relay.failure(), false);
    guard(
        [&] {
          if (const auto failure = landing_->failure()) std::rethrow_exception(failure);
        },
        true);
    ChunkSet left(table_->size());
    for (const Relay::Damaged& one : relay.damaged())
      if (lacking_.has(one.chunk)) left.add(one.chunk);
    lacking_ = left;
    damage_ = {};
    for (const Relay::Damaged& one : relay.damaged()) {
      if (one.is_told) continue;
      ++damage_.number;
      damage_.to = wire_.rank();
      damage_.from = one.from;
    }
  }

  // After a round: all end if the source failed; else what arrived damaged is sent again.
  bool agree_on_what_is_left(int round) {
    if (!agree(stopped_)) return false;
    const auto text_of = [](const Damage& it) { return std::string(reinterpret_cast<const char*>(&it), sizeof it); };
    const auto damage_of = [](const std::string& text) {
      Damage it;
      std::memcpy(&it, text.data(), sizeof it);
      return it;
    };
    const Damage damage =
        damage_of(messages_.reduce(text_of(damage_), [&](std::string& into, const std::string& other) {
          Damage most = damage_of(into), second = damage_of(other);
          if (second.number > most.number) std::swap(most, second);
          most.number += second.number;
          into = text_of(most);
        }));
    unite_lacking();
    if (is_root() && damage.number > 0)
      outcome_.warnings.push_back(
          fmt::format("{} chunks came damaged, the most from rank {} to rank {}; they were sent again", damage.number,
                      damage.from, damage.to));
    Verdict verdict;
    if (is_root() && round + 1 == kMostRounds && !to_send_.empty()) {
      verdict = {
          exit_code::kCollective,
          fmt::format("chunks came damaged {} times, the last from rank {} to rank {}; run it without their nodes",
                      kMostRounds, damage.from, damage.to)};
    }
    return agree(verdict);
  }

  void finish() {
    guard([&] { landing_->finish(); }, true);
    outcome_.report = merged_report();
    const Report& report = outcome_.report;
    agree(is_root() && report.num_failed() > 0 ? Verdict{report.failed()[0].exit_code, report.failure_text()}
                                               : Verdict());
  }

  Report merged_report() {
    const double seconds = std::chrono::duration<double>(Clock::now() - begin_).count();
    Report own;
    if (takes_part()) {
      const uint64_t bytes = landing_ ? landing_->bytes_written() : 0;
      own = Report({leaders_.node_of(wire_.rank()), host_, seconds, bytes, failure_.exit_code, failure_.failure},
                   request_.lists_nodes);
    }
    const std::string text = messages_.reduce(own.encode(), [](std::string& into, const std::string& other) {
      Report merged = Report::decode(into);
      merged.merge(Report::decode(other));
      into = merged.encode();
    });
    return is_root() ? Report::decode(text) : own;
  }

  comm::Wire& wire_;
  const YeetRequest& request_;
  const std::string& host_;
  std::vector<std::shared_ptr<void>>& keep_alive_;
  TreeMessages messages_;
  const std::string target_;
  const Leaders leaders_;
  YeetOutcome outcome_;
  Listing listing_;
  std::optional<ChunkTable> table_;
  std::optional<SourceReader> reader_;  // on rank 0
  std::unique_ptr<Landing> landing_;    // null on ranks that take no part
  ChunkSet lacking_;
  std::vector<uint64_t> to_send_;
  Verdict failure_;  // what failed on this node
  Verdict stopped_;  // on rank 0: of its source
  Damage damage_;    // in this round, on the way to this rank
  Clock::time_point begin_;
};

}  // namespace

YeetOutcome yeet(comm::Wire& wire, const YeetRequest& request, const std::string& host,
                 std::vector<std::shared_ptr<void>>& keep_alive) {
  return Transfer(wire, request, host, keep_alive).run();
}

}  // namespace athanor::staging
