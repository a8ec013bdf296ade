#pragma once
// Pipeline schedules as data: what each pipeline rank computes, in order. Which messages that needs follows from it.

#include <cstdint>
#include <string>
#include <vector>

namespace athanor {

enum class Work { kForward, kBackward };

/// One microbatch through one of a rank's stages.
struct Action {
  Work work;
  int microbatch;
  int chunk;  ///< of the rank: its stage is chunk · ranks + rank

  bool operator==(const Action&) const = default;
};

struct Schedule {
  std::string name;
  int ranks = 1, chunks = 1, microbatches = 1;
  std::vector<std::vector<Action>> actions;  ///< of each rank

  int num_stages() const { return ranks * chunks; }
  int stage_of(int rank, int chunk) const { return chunk * ranks + rank; }
};

/// What a schedule costs, by playing it with stages of equal cost.
struct ScheduleFacts {
  std::vector<int> in_flight;  ///< of each rank: most microbatches, over its chunks, between forward and backward
  double bubble = 0;           ///< share of the ranks' time in which they wait; a backward takes twice a forward
};

/// @param name  a value of parallelism.pipeline_schedule. @throws ConfigError if it cannot be had with these numbers
///              (find_schedule_faults).
Schedule make_schedule(const std::string& name, int ranks, int chunks, int microbatches);

/// When an action ran, or would: in seconds, or in forwards of a stage.
struct TimedAction {
  Action action;
  double begin_s = 0, end_s = 0;
  double waited_s = 0;  ///< before `begin_s`, for its input
};
using Timeline = std::vector<std::vector<TimedAction>>;  ///< of each rank

/// What a stage takes for a microbatch.
struct StageCost {
  double forward = 1, backward = 2;
};

/// When each action would run if messages took no time. @param costs  of each stage; empty: they all cost the same.
/// @throws as check_schedule.
Timeline play_schedule(const Schedule& schedule, const std::vector<StageCost>& costs = {});

/// The mean of each stage.
std::vector<StageCost> mean_costs(const Schedule& schedule, const Timeline& timeline);

/// Share of the ranks' time in which they wait, between the first begin and the last end of all.
double bubble_of(const Timeline& timeline);

/// Why there is no such schedule: too few microbatches, chunks that it does not know.
std::vector<std::string> find_schedule_faults(const std::string& name, int ranks, int chunks, int64_t microbatches);

/// @throws Error naming the actions: one that is missing or there twice, ranks that wait for one another for ever.
ScheduleFacts check_schedule(const Schedule& schedule);

/// "F0", or with several chunks "F0.1": microbatch 0 in chunk 1.
std::string text_of(const Action& action, int chunks);

/// A line for each rank: "rank 0: F0 F1 B0 ...".
std::string describe(const Schedule& schedule);

}  // namespace athanor
