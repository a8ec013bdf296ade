#include "arch/schedule.h"

#include <algorithm>
#include <array>

#include "arch/schedules/schedules.h"
#include "base/error.h"
#include "base/text.h"

namespace athanor {
namespace schedules {

std::vector<Action> one_in_turn(const std::vector<Action>& forwards, const std::vector<Action>& backwards,
                                int num_ahead) {
  const size_t n = forwards.size(), ahead = std::min(static_cast<size_t>(num_ahead), n);
  std::vector<Action> actions(forwards.begin(), forwards.begin() + static_cast<std::ptrdiff_t>(ahead));
  for (size_t i = 0; i < n; ++i) {
    if (ahead + i < n) actions.push_back(forwards[ahead + i]);
    actions.push_back(backwards[i]);
  }
  return actions;
}

void require_one_chunk(const char* name, int chunks, Findings& found) {
  found.require(chunks == 1,
                "pipeline_schedule \"{}\" knows one stage of each rank, and virtual_stages is {}: set "
                "parallelism.virtual_stages = 1, or parallelism.pipeline_schedule = \"interleaved_1f1b\"",
                name, chunks);
}

}  // namespace schedules

namespace {

using schedules::Kind;

const std::array kKinds = {&schedules::kGpipe, &schedules::kOneForwardOneBackward, &schedules::kInterleaved};
constexpr int64_t kMostMicrobatches = 1 << 20;

const Kind* find_kind(const std::string& name) {
  for (const Kind* kind : kKinds) {
    if (name == kind->name) return kind;
  }
  return nullptr;
}

std::string unknown(const std::string& name) {
  std::vector<std::string> names;
  for (const Kind* kind : kKinds) names.emplace_back(kind->name);
  return fmt::format("there is no pipeline_schedule \"{}\"{}; set parallelism.pipeline_schedule to one of {}", name,
                     did_you_mean(name, names), join(names));
}

std::string text_of(const Action& action, int chunks) {
  const char letter = action.work == Work::kForward ? 'F' : 'B';
  return chunks == 1 ? fmt::format("{}{}", letter, action.microbatch)
                     : fmt::format("{}{}.{}", letter, action.microbatch, action.chunk);
}

/// Where every action stands in a rank's list, and that each is there once.
void check_each_once(const Schedule& s, int rank) {
  const auto m = static_cast<size_t>(s.microbatches), n = m * static_cast<size_t>(s.chunks);
  std::vector<int> num_seen(2 * n);
  std::vector<int> last_backward(static_cast<size_t>(s.chunks), -1);
  const auto& actions = s.actions[static_cast<size_t>(rank)];
  for (const Action& a : actions) {
    const std::string text = text_of(a, s.chunks);
    if (a.microbatch < 0 || a.microbatch >= s.microbatches || a.chunk < 0 || a.chunk >= s.chunks) {
      fail<Error>("bug: schedule {}: rank {} has {}, of {} microbatches and {} chunks", s.name, rank, text,
                  s.microbatches, s.chunks);
    }
    const size_t idx = static_cast<size_t>(a.chunk) * m + static_cast<size_t>(a.microbatch);
    if (++num_seen[(a.work == Work::kBackward ? n : 0) + idx] > 1) {
      fail<Error>("bug: schedule {}: rank {} has {} twice", s.name, rank, text);
    }
    if (a.work == Work::kForward) continue;
    int& last = last_backward[static_cast<size_t>(a.chunk)];
    if (a.microbatch < last) {
      fail<Error>("bug: schedule {}: rank {} has {} after {}: gradients are to be summed in ascending order", s.name,
                  rank, text, text_of({a.work, last, a.chunk}, s.chunks));
    }
    last = a.microbatch;
  }
  for (size_t i = 0; i < num_seen.size(); ++i) {
    const Action a{i < n ? Work::kForward : Work::kBackward, static_cast<int>(i % m), static_cast<int>(i % n / m)};
    if (num_seen[i] == 0) fail<Error>("bug: schedule {}: rank {} lacks {}", s.name, rank, text_of(a, s.chunks));
  }
}

/// Plays a schedule: each rank does its actions in order, and each action begins when what it needs is there.
class Play {
 public:
  explicit Play(const Schedule& s)
      : s_(s), next_(static_cast<size_t>(s.ranks)), free_at_(next_.size()), held_(next_.size()),
        most_held_(next_.size()),
        end_(2 * static_cast<size_t>(s.num_stages()) * static_cast<size_t>(s.microbatches), kNotYet) {}

  ScheduleFacts run() {
    bool moved = true;
    while (moved) {
      moved = false;
      for (int rank = 0; rank < s_.ranks; ++rank) {
        while (!is_over(rank) && step(rank)) moved = true;
      }
    }
    require_all_over();
    const int64_t busy = int64_t{3} * s_.num_stages() * s_.microbatches;
    const int64_t last = *std::max_element(free_at_.begin(), free_at_.end());
    return {most_held_, 1 - static_cast<double>(busy) / static_cast<double>(last * s_.ranks)};
  }

 private:
  static constexpr int64_t kNotYet = -1;

  const std::vector<Action>& actions(int rank) const { return s_.actions[static_cast<size_t>(rank)]; }
  size_t& next(int rank) { return next_[static_cast<size_t>(rank)]; }
  bool is_over(int rank) { return next(rank) == actions(rank).size(); }
  int64_t& end_of(Work work, int stage, int microbatch) {
    const int place = (work == Work::kForward ? 0 : s_.num_stages()) + stage;
    return end_[static_cast<size_t>(place) * static_cast<size_t>(s_.microbatches) + static_cast<size_t>(microbatch)];
  }

  struct Need {
    Work work;
    int stage;
  };
  /// At most two: a backward needs its own forward, and the backward behind it.
  std::vector<Need> needs(int rank, const Action& a) const {
    const int stage = s_.stage_of(rank, a.chunk);
    if (a.work == Work::kForward) return stage > 0 ? std::vector<Need>{{a.work, stage - 1}} : std::vector<Need>{};
    std::vector<Need> all{{Work::kForward, stage}};
    if (stage + 1 < s_.num_stages()) all.push_back({a.work, stage + 1});
    return all;
  }

  /// False if the rank has to wait.
  bool step(int rank) {
    const Action& a = actions(rank)[next(rank)];
    int64_t begin = free_at_[static_cast<size_t>(rank)];
    for (const Need& need : needs(rank, a)) {
      const int64_t end = end_of(need.work, need.stage, a.microbatch);
      if (end == kNotYet) return false;
      begin = std::max(begin, end);
    }
    const bool forward = a.work == Work::kForward;
    free_at_[static_cast<size_t>(rank)] = end_of(a.work, s_.stage_of(rank, a.chunk), a.microbatch) =
        begin + (forward ? 1 : 2);
    int& held = held_[static_cast<size_t>(rank)];
    held += forward ? 1 : -1;
    most_held_[static_cast<size_t>(rank)] = std::max(most_held_[static_cast<size_t>(rank)], held);
    ++next(rank);
    return true;
  }

  void require_all_over() {
    std::vector<std::string> waits;
    for (int rank = 0; rank < s_.ranks; ++rank) {
      if (is_over(rank)) continue;
      const Action& a = actions(rank)[next(rank)];
      for (const Need& need : needs(rank, a)) {
        if (end_of(need.work, need.stage, a.microbatch) != kNotYet) continue;
        waits.push_back(fmt::format("rank {} with {} for {} of rank {}", rank, text_of(a, s_.chunks),
                                    text_of({need.work, a.microbatch, need.stage / s_.ranks}, s_.chunks),
                                    need.stage % s_.ranks));
      }
    }
    if (!waits.empty()) fail<Error>("bug: schedule {} never ends; there wait {}", s_.name, join(waits));
  }

  const Schedule& s_;
  std::vector<size_t> next_;
  std::vector<int64_t> free_at_;
  std::vector<int> held_, most_held_;
  std::vector<int64_t> end_;  ///< of work, stage, microbatch
};

}  // namespace

std::vector<std::string> find_schedule_faults(const std::string& name, int ranks, int chunks, int64_t microbatches) {
  const Kind* kind = find_kind(name);
  if (!kind) return {unknown(name)};
  Findings found;
  // One rank has nothing to fill: it takes one microbatch after the other, whatever the name.
  if (ranks == 1) {
    found.require(chunks == 1,
                  "parallelism.virtual_stages ({}) cuts a pipeline's ranks, and there is one: set it to 1, or raise "
                  "parallelism.pipeline_parallel_degree",
                  chunks);
    found.require(microbatches >= 1, "a step needs a microbatch, and there are {}: {}", microbatches,
                  schedules::kMoreMicrobatches);
  } else {
    kind->require(ranks, chunks, microbatches, found);
  }
  found.require(microbatches <= kMostMicrobatches,
                "a step of {} microbatches is more than a schedule may list ({}): raise train.micro_batch_size",
                microbatches, kMostMicrobatches);
  return found.take();
}

Schedule make_schedule(const std::string& name, int ranks, int chunks, int microbatches) {
  ATHANOR_ASSERT(ranks >= 1);
  const std::vector<std::string> faults = find_schedule_faults(name, ranks, chunks, microbatches);
  ATHANOR_CHECK(faults.empty(), "{}", join(faults, "\n"));
  const Kind& kind = ranks == 1 ? schedules::kOneForwardOneBackward : *find_kind(name);
  Schedule schedule{name, ranks, chunks, microbatches, {}};
  for (int rank = 0; rank < ranks; ++rank) {
    schedule.actions.push_back(kind.actions_of(rank, {ranks, chunks, microbatches}));
  }
  return schedule;
}

ScheduleFacts check_schedule(const Schedule& schedule) {
  ATHANOR_ASSERT(schedule.ranks >= 1 && schedule.chunks >= 1 && schedule.microbatches >= 1);
  ATHANOR_ASSERT(schedule.actions.size() == static_cast<size_t>(schedule.ranks));
  for (int rank = 0; rank < schedule.ranks; ++rank) check_each_once(schedule, rank);
  return Play(schedule).run();
}

std::string describe(const Schedule& schedule) {
  std::string text;
  for (size_t rank = 0; rank < schedule.actions.size(); ++rank) {
    text += fmt::format("rank {}:", rank);
    for (const Action& a : schedule.actions[rank]) text += " " + text_of(a, schedule.chunks);
    text += "\n";
  }
  return text;
}

}  // namespace athanor
