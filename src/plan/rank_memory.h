#pragma once
// The memory that a rank of a run will take, and what it sends, by a played step.

#include <map>
#include <vector>

#include "base/error.h"
#include "config/run_config.h"
#include "layout/communicator_memory.h"
#include "layout/memory.h"
#include "layout/traffic.h"
#include "ops/played.h"

namespace athanor::inline plan {

/// Where a rank will run.
struct PlannedPlace {
  /// kHost: CPUs such as those of this process, with its paths of matrix products and its threads.
  ops::PlayedPlace place = ops::PlayedPlace::kHost;
  int threads = 1;              ///< those of a planned host
  std::vector<int> hosts = {};  ///< as opened_groups takes it: communicators of devices depend on it

  bool on_device() const { return is_device(place); }
};

/// Returns the place that a configuration names, whatever this machine has: a device, or CPUs with train.num_threads
/// threads, where tiles multiply that read bf16 as fp32.
PlannedPlace planned_place(const RunConfig& config, int num_ranks);
/// Returns the place of a rank on a device.
PlannedPlace device_place(const RunConfig& config, std::vector<int> hosts);

struct RankPlan {
  int rank = 0;
  MemoryNeed need;
  std::vector<RankTraffic> sent;                ///< in a step, without a second backward
  std::map<GroupKind, int64_t> in_flight = {};  ///< most collectives that are started and not waited for at one time
  std::vector<OpenedGroup> opened = {};         ///< on devices
};

/// Returns what `rank` will take there, of its host's memory or of its device's. Experts get an even share of the
/// tokens. What CUDA takes for its context, half a gigabyte, is not counted: a rank that asks how much of its device is
/// free has a context then.
/// @param config  resolved: data.seq_len is set and the model's fields are filled in.
/// @throws ConfigError with every fault of the layout, or if a microbatch has more tokens than any machine holds;
///         NotPlayed if an op of the step has no form for tensors without memory.
RankPlan plan_rank(const RunConfig& config, const Layout& layout, int rank, const PlannedPlace& on = {});
inline MemoryNeed memory_of_rank(const RunConfig& config, const Layout& layout, int rank, const PlannedPlace& on = {}) {
  return plan_rank(config, layout, rank, on).need;
}

struct NotPlayed : Error {
  using Error::Error;
};

/// Returns the same for a check before a run: zeros if the step cannot be played, with a line in the log.
MemoryNeed memory_if_known(const RunConfig& config, const Layout& layout, int rank, const PlannedPlace& on = {});

/// Returns the ranks of data rank 0, one of each stage, of which one needs most memory: of stages with the same parts
/// the first, which has most microbatches in flight.
std::vector<int> ranks_that_differ(const RunConfig& config, const Layout& layout);

/// Returns the plan of the one of these that needs most memory.
RankPlan fullest_plan(const RunConfig& config, const Layout& layout, const PlannedPlace& on);

}  // namespace athanor::inline plan
