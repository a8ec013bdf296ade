#pragma once
// A training step of one rank of a layout, played: the code that trains runs on tensors without memory, in a world
// without peers. So a machine of any size finds out what the rank would compute, hold and send.

#include <memory>
#include <vector>

#include "config/run_config.h"
#include "plan/play_record.h"

namespace athanor::inline plan {

struct PlayedStep {
  explicit PlayedStep(ops::PlayedPlace place);

  PlayRecord record;                            ///< the step, without what was made before it
  std::map<GroupKind, int64_t> in_flight = {};  ///< most collectives that were started and not waited for
  int64_t kept_bytes = 0;  ///< weights, gradients and state, which the rank holds before and after the step
  /// The most that the step holds in addition, at one time.
  int64_t passing_bytes() const { return record.peak_bytes() - kept_bytes; }
  /// The same of the update alone, and of what comes before it.
  int64_t update_bytes() const;
  int64_t gradient_bytes() const;
  /// The part of gradient_bytes() that the forward or backward with the peak finds when it begins.
  int64_t activation_bytes() const;
};

/// What is played.
struct PlayedRank {
  int ranks = 1, rank = 0;
  ops::PlayedPlace place = ops::PlayedPlace::kHost;
  int threads = 1;                         ///< those of a planned host
  std::vector<double> expert_shares = {};  ///< the part of all choices that each expert gets; empty: equal parts
};

/// Plays the first step of a run. On CPUs products take the paths of this process (ops/matmul_paths.h), and scratch
/// memory is that of its number of threads. On devices blocks have the sizes of libtorch's allocator.
/// A dispatch that a run would measure (moe.dispatch = "auto") is all_to_all.
/// @param config  resolved: data.seq_len is set and the model's fields are filled in.
/// @throws ConfigError with every fault of the layout.
std::unique_ptr<PlayedStep> play_step(const RunConfig& config, const PlayedRank& which);

}  // namespace athanor::inline plan
