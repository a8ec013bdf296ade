// The end of a collective: waiting for it, and naming who is missing.

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/missing_ranks.h"
#include "base/wall_clock.h"
#include "comm/host_backend.h"
#include "comm/pending_state.h"

namespace athanor::comm {
namespace {

/// Replaces each "rank {3}" in a text of the backend by the name of the member with that index.
std::string with_names(std::string text, const std::vector<std::string>& names) {
  for (size_t i = 0; i < names.size(); ++i) {
    const std::string mark = fmt::format("rank {{{}}}", i);
    for (size_t at = text.find(mark); at != std::string::npos; at = text.find(mark)) {
      text.replace(at, mark.size(), names[i]);
    }
  }
  return text;
}

/// Returns "rank 0 (a), which rank 1 (a) waits for in group expert, rank 5 (b), which does not answer".
std::string named(const std::vector<Late>& late, const HostWork& work) {
  constexpr size_t kShown = 16;
  std::string text;
  for (size_t i = 0; i < late.size() && i < kShown; ++i) {
    const Late& one = late[i];
    text += (i > 0 ? ", " : "") + work.name_of(one.rank);
    if (one.awaited_by >= 0) {
      text += fmt::format(", which {} waits for in group {}", work.name_of(one.awaited_by), one.group);
    }
    if (!one.answers) {
      text += ", which does not answer";
    } else if (one.worked > 0) {
      text += fmt::format(", which has done no work for {:.3g} s", static_cast<double>(one.still_ms) / 1e3);
    }
  }
  if (late.size() > kShown) text += fmt::format(" and {} more", late.size() - kShown);
  return text;
}

std::vector<RankOnHost> missing_of(const HostWork& work) {
  std::vector<RankOnHost> missing;
  for (const Late& one : work.late()) missing.push_back({one.rank, work.host_of(one.rank)});
  return missing;
}

}  // namespace

std::string what_of(const CallRecord& record, const std::string& group) {
  return fmt::format("{} (number {}) of group {}", describe(record), record.number, group);
}

void Pending::State::enter_flight() {
  in_flight = check ? 2 : 1;
  traffic->in_flight += in_flight;
  traffic->most_in_flight = std::max(traffic->most_in_flight, traffic->in_flight);
}

void Pending::State::leave_flight() {
  if (traffic) traffic->in_flight -= in_flight;
  in_flight = 0;
}

void Pending::State::begin_span() {
  if (spans && spans->is_on()) flight = spans->open(span(Span::Row::kFlight, ""));
}

Span Pending::State::span(Span::Row row, const char* prefix) const {
  Span made{row, fmt::format("{}{}: {}", prefix, group, collective_name(record.collective)), group};
  made.numbers = {{"number", record.number}, {"bytes", record.bytes}};
  if (peer >= 0) made.numbers.emplace_back("peer", peer);
  return made;
}

bool Pending::State::checked() {
  if (!check) return true;
  if (!check->isCompleted()) return false;
  finish_check();
  return true;
}

void Pending::State::finish_check() {
  check.reset();
  disagrees = disagreement({records.const_data_ptr<int64_t>(), static_cast<size_t>(records.numel())},
                           static_cast<int>(names->size()), *names);
}

void Pending::State::queue_wait() {
  if (stalls) stalls->stall_begins();
  work->wait();
  if (stalls) stalls->stall_ends();
}

void Pending::State::wait_for(Work& one) {
  auto* host = dynamic_cast<HostWork*>(one.get());
  const auto begin = std::chrono::steady_clock::now();
  if (!one->wait(timeout)) {
    const std::string who = host && !host->late().empty()
                                ? "missing: " + named(host->late(), *host)
                                : "no rank is late: the network is slow, or ranks wait for one another";
    throw MissingRanks(fmt::format("{}: not over after {:.3g} s; {}; see what happens there, or raise the timeout",
                                   what_of(record, group), seconds_since(begin), who),
                       host ? missing_of(*host) : std::vector<RankOnHost>());
  }
  if (host && !host->error().empty()) {
    fail<CommError>("{}: {}; the ranks do not make the same call", what_of(record, group),
                    with_names(host->error(), *names));
  }
}

bool Pending::done() const {
  if (!state_ || !state_->work) return true;
  return state_->checked() && (!state_->disagrees.empty() || state_->work->isCompleted());
}

bool Pending::is_queued() const { return state_ && state_->on_device; }

void Pending::wait() {
  if (!state_) return;
  State& state = *state_;
  const auto begin = std::chrono::steady_clock::now();
  const board::Waiting shown(state.board, state.on_device ? -1 : state.board_group, state.record.number,
                             state.record.collective, state.peer);
  const bool is_logged = state.flight != SpanLog::kNone;
  const size_t waiting = is_logged ? state.spans->open(state.span(Span::Row::kTraining, "wait: ")) : SpanLog::kNone;
  if (state.check) {
    state.wait_for(state.check);
    state.finish_check();
  }
  if (!state.disagrees.empty()) {
    fail<CommError>("ranks of group {} do not make the same call: {}", state.group, state.disagrees);
  }
  if (state.work && state.on_device) state.queue_wait();
  if (state.work && !state.on_device) state.wait_for(state.work);
  if (is_logged) {
    const auto* host = dynamic_cast<const HostWork*>(state.work.get());
    state.spans->close(state.flight, host ? host->completed_ns() : 0);
    state.spans->close(waiting);
    state.flight = SpanLog::kNone;  // a later wait for the same call finds it complete
  }
  if (state.noted) state.noted->let_go();
  state.work.reset();
  state.leave_flight();
  state.traffic->waited_s += seconds_since(begin);
}

void Pending::follow() const {
  if (state_ && state_->on_device && state_->work) state_->work->wait();
}

}  // namespace athanor::comm
