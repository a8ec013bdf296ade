#pragma once
// What a run can change to need less memory, by the estimate of plan/rank_memory.h: settings of its configuration, or
// the number of its ranks.

#include <optional>
#include <string>
#include <vector>

#include "plan/rank_memory.h"

namespace athanor::inline memory {

/// A change of one setting, and what the run would need with it.
struct MemoryRemedy {
  std::string setting;  ///< "train.micro_batch_size = 2"
  MemoryNeed need;
};

/// A rank of a job that trains on devices.
struct DeviceRank {
  int rank = 0, ranks = 1;
  std::vector<int> hosts = {};  ///< as opened_groups takes it
};

/// Returns for each setting that lowers a rank's memory its changes, from the mildest to the strongest:
/// train.micro_batch_size, parallelism.recompute, train.loss_chunk_tokens, train.cuda_graphs and moe.dispatch, each
/// only as far as the rest of the configuration allows it. What does not lower the estimate is left out.
std::vector<std::vector<MemoryRemedy>> memory_remedies(const RunConfig& config, const DeviceRank& of = {});

/// Returns what to change so that the rank needs at most `bytes`: of each setting the mildest change that suffices
/// alone ("train.micro_batch_size = 2 (7.10GiB) or …"), else all settings at their strongest together; and the fewest
/// ranks on such devices that suffice (fewest_ranks). If nothing of this does: these ranks with all these
/// settings, else a smaller model.
std::string what_would_fit(const RunConfig& config, double bytes, const DeviceRank& of = {});

/// Returns the changes that save most, the largest first, as "train.micro_batch_size = 2 (3.20GiB less), …": of each
/// setting the mildest that saves a tenth of the need, else its strongest; a smaller model if there is none.
std::string what_saves_most(const RunConfig& config, const DeviceRank& of = {});

/// Returns memory_if_known for a rank.
MemoryNeed need_of_device(const RunConfig& config, const DeviceRank& of);

/// Returns one more part of a need, ", or, when the activations are gone, 2.00GiB of whole matrices in Muon's update";
/// "" if an update holds none.
std::string describe_update(const MemoryNeed& need);

/// Returns "4.00GiB of weights, …": the parts of the estimate, with the state of weights in its terms.
std::string describe_need(const RunConfig& config, const DeviceRank& of, const MemoryNeed& need);

/// A layout of one axis more, or of a longer one.
struct RankRemedy {
  int ranks = 1;
  std::string setting;    ///< "parallelism.expert_parallel_degree = 4"
  double need_bytes = 0;  ///< what the fullest rank needs
  RunConfig config;

  /// Returns "4 ranks with parallelism.expert_parallel_degree = 4 (3.00GiB on each)".
  std::string text(int ranks_now) const;
};

/// The job that does not fit, and what its ranks have.
struct TightJob {
  int ranks = 1;
  int ranks_of_host = 1;  ///< also in a larger job, which has more hosts; on devices only its messages depend on it
  double bytes = 0;       ///< that a rank may take
  PlannedPlace place;     ///< without hosts, which follow from the above
};

/// Returns the layout with the fewest ranks, not fewer than now, in which each rank fits, if there is one. Layouts
/// differ from that of now in one degree: shard, expert, tensor or pipeline; of several with as many ranks it is the
/// first in this order that fits. Where the number of ranks stays, or the expert degree asks for it, the shard degree
/// differs, too, and is then part of `setting`. Degrees that the model or the batch do not allow are left out.
std::optional<RankRemedy> fewest_ranks(const RunConfig& config, const TightJob& job);

}  // namespace athanor::inline memory
