// Schedules are simulated before anything runs, with stages of equal cost. This finds missing actions and deadlocks,
// and shows how much is held and how long ranks wait.

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "base/text.h"
#include "layout/schedule.h"

namespace athanor::inline layout {
namespace {

/// Checks that every action of a rank occurs once, and that backwards are in ascending order.
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

/// Each rank does its actions in order, and each action begins when its inputs are there.
class Play {
 public:
  Play(const Schedule& s, const std::vector<StageCost>& costs)
      : s_(s), costs_(costs), played_(static_cast<size_t>(s.ranks)),
        end_(2 * static_cast<size_t>(s.num_stages()) * static_cast<size_t>(s.microbatches), kNotYet) {}

  Timeline run() {
    bool moved = true;
    while (moved) {
      moved = false;
      for (int rank = 0; rank < s_.ranks; ++rank) {
        while (!is_over(rank) && step(rank)) moved = true;
      }
    }
    require_all_over();
    return std::move(played_);
  }

 private:
  static constexpr double kNotYet = -1;

  std::vector<TimedAction>& played(int rank) { return played_[static_cast<size_t>(rank)]; }
  const std::vector<Action>& actions(int rank) const { return s_.actions[static_cast<size_t>(rank)]; }
  const Action& next(int rank) { return actions(rank)[played(rank).size()]; }
  bool is_over(int rank) { return played(rank).size() == actions(rank).size(); }
  double& end_of(Work work, int stage, int microbatch) {
    const int place = (work == Work::kForward ? 0 : s_.num_stages()) + stage;
    return end_[static_cast<size_t>(place) * static_cast<size_t>(s_.microbatches) + static_cast<size_t>(microbatch)];
  }

  struct Need {
    Work work;
    int stage;
  };
  /// Returns at most two: a backward needs its own forward, and the backward of the next stage.
  std::vector<Need> needs(int rank, const Action& a) const {
    const int stage = s_.stage_of(rank, a.chunk);
    if (a.work == Work::kForward) return stage > 0 ? std::vector<Need>{{a.work, stage - 1}} : std::vector<Need>{};
    std::vector<Need> all{{Work::kForward, stage}};
    if (stage + 1 < s_.num_stages()) all.push_back({a.work, stage + 1});
    return all;
  }

  /// Returns false if the rank has to wait.
  bool step(int rank) {
    const Action& a = next(rank);
    const double asked = played(rank).empty() ? 0 : played(rank).back().end_s;
    double begin = asked;
    for (const Need& need : needs(rank, a)) {
      const double end = end_of(need.work, need.stage, a.microbatch);
      if (end == kNotYet) return false;
      begin = std::max(begin, end);
    }
    const int stage = s_.stage_of(rank, a.chunk);
    const StageCost cost = costs_.empty() ? StageCost{} : costs_[static_cast<size_t>(stage)];
    const double end = begin + (a.work == Work::kForward ? cost.forward : cost.backward);
    end_of(a.work, stage, a.microbatch) = end;
    played(rank).push_back({a, begin, end, begin - asked});
    return true;
  }

  void require_all_over() {
    std::vector<std::string> waits;
    for (int rank = 0; rank < s_.ranks; ++rank) {
      if (is_over(rank)) continue;
      const Action& a = next(rank);
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
  const std::vector<StageCost>& costs_;
  Timeline played_;
  std::vector<double> end_;  ///< end times, by stage and microbatch
};

int most_in_flight(const std::vector<Action>& actions) {
  int held = 0, most = 0;
  for (const Action& a : actions) {
    held += a.work == Work::kForward ? 1 : -1;
    most = std::max(most, held);
  }
  return most;
}

}  // namespace

Timeline play_schedule(const Schedule& schedule, const std::vector<StageCost>& costs) {
  ATHANOR_ASSERT(costs.empty() || costs.size() == static_cast<size_t>(schedule.num_stages()));
  ATHANOR_ASSERT(schedule.ranks >= 1 && schedule.chunks >= 1 && schedule.microbatches >= 1);
  ATHANOR_ASSERT(schedule.actions.size() == static_cast<size_t>(schedule.ranks));
  for (int rank = 0; rank < schedule.ranks; ++rank) check_each_once(schedule, rank);
  return Play(schedule, costs).run();
}

ScheduleFacts check_schedule(const Schedule& schedule) {
  const Timeline played = play_schedule(schedule);
  ScheduleFacts facts;
  for (const auto& actions : schedule.actions) facts.in_flight.push_back(most_in_flight(actions));
  facts.bubble = bubble_of(played);
  return facts;
}

std::vector<StageCost> mean_costs(const Schedule& schedule, const Timeline& timeline) {
  std::vector<StageCost> costs(static_cast<size_t>(schedule.num_stages()), {0, 0});
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    for (const TimedAction& timed : timeline[static_cast<size_t>(rank)]) {
      StageCost& cost = costs[static_cast<size_t>(schedule.stage_of(rank, timed.action.chunk))];
      (timed.action.work == Work::kForward ? cost.forward : cost.backward) +=
          (timed.end_s - timed.begin_s) / schedule.microbatches;
    }
  }
  return costs;
}

double bubble_of(const Timeline& timeline) {
  double busy = 0, begin = std::numeric_limits<double>::infinity(), end = -begin;
  for (const auto& rank : timeline) {
    for (const TimedAction& timed : rank) {
      busy += timed.end_s - timed.begin_s;
      begin = std::min(begin, timed.begin_s);
      end = std::max(end, timed.end_s);
    }
  }
  return 1 - busy / ((end - begin) * static_cast<double>(timeline.size()));
}

}  // namespace athanor::inline layout
