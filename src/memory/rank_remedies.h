#pragma once
// The smallest job in which a run would fit whose ranks have too little memory, by the estimate of layout/memory.h.

#include <optional>
#include <string>

#include "layout/memory.h"

namespace athanor::inline memory {

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
  Multiplier multiplier = kDeviceMultiplier;
};

/// Returns the layout with the fewest ranks, not fewer than now, in which each rank fits, if there is one. Layouts
/// differ from that of now in one degree: shard, expert, tensor or pipeline (of several with as many ranks the first
/// in this order that fits), and where the number of ranks stays or the expert degree asks for it, in the shard degree,
/// too, which is then part of `setting`. Degrees that the model or the batch do not allow are left out.
std::optional<RankRemedy> fewest_ranks(const RunConfig& config, const TightJob& job);

}  // namespace athanor::inline memory
