#pragma once
// Pipeline schedules as data: the actions that each pipeline rank computes, in order. The messages follow from them.

#include <cstdint>
#include <string>
#include <vector>

namespace athanor::inline layout {

enum class Work { kForward, kBackward };

/// The forward or backward of one microbatch through one of a rank's stages.
struct Action {
  Work work;
  int microbatch;
  int chunk;  ///< index among the rank's stages: the stage is chunk · ranks + rank

  bool operator==(const Action&) const = default;
};

struct Schedule {
  std::string name;
  int ranks = 1, chunks = 1, microbatches = 1;
  std::vector<std::vector<Action>> actions;  ///< one list for each rank

  int num_stages() const { return ranks * chunks; }
  int stage_of(int rank, int chunk) const { return chunk * ranks + rank; }
};

/// The cost of a schedule, found by simulating it with stages of equal cost.
struct ScheduleFacts {
  std::vector<int> in_flight;  ///< for each rank: most microbatches between forward and backward, summed over chunks
  double bubble = 0;  ///< share of the ranks' time spent waiting, if a backward takes twice as long as a forward
};

/// Returns the schedule of this name.
/// @param name  a value of parallelism.pipeline_schedule.
/// @throws ConfigError if the schedule does not exist for these numbers (find_schedule_faults).
Schedule make_schedule(const std::string& name, int ranks, int chunks, int microbatches);

/// The time at which an action ran (in seconds from any origin), or would run in a simulation (in units of StageCost).
struct TimedAction {
  Action action;
  double begin_s = 0, end_s = 0;
  double waited_s = 0;  ///< time waited for the input, before `begin_s`
};
using Timeline = std::vector<std::vector<TimedAction>>;  ///< one list for each rank

/// The time that a stage takes for a microbatch; the default unit is one forward.
struct StageCost {
  double forward = 1, backward = 2;
};

/// Simulates a schedule and returns the time at which each action would run if messages took no time.
/// @param costs  one for each stage; empty: all stages have the default cost.
/// @throws Error as check_schedule.
Timeline play_schedule(const Schedule& schedule, const std::vector<StageCost>& costs = {});

/// Returns the cost of each stage, as the mean over the microbatches of a measured timeline, in its unit.
std::vector<StageCost> mean_costs(const Schedule& schedule, const Timeline& timeline);

/// Returns the share of the ranks' time spent waiting, between the first begin and the last end of all actions.
double bubble_of(const Timeline& timeline);

/// Returns the reasons why a schedule does not exist for these numbers: too few microbatches, unsupported chunks. Empty
/// if it exists.
std::vector<std::string> find_schedule_faults(const std::string& name, int ranks, int chunks, int64_t microbatches);

/// Checks a schedule and returns its cost.
/// @throws Error naming the actions, if one is missing or occurs twice, or if ranks wait for one another forever; also
///         if a chunk's backwards are not in ascending order of microbatches.
ScheduleFacts check_schedule(const Schedule& schedule);

/// Returns an action as text: "F0", or "F0.1" (microbatch 0 in chunk 1) if there are several chunks.
std::string text_of(const Action& action, int chunks);

/// Returns the schedule as text, with a line for each rank: "rank 0: F0 F1 B0 ...".
std::string describe(const Schedule& schedule);

}  // namespace athanor::inline layout
