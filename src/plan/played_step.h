#pragma once
// A training step of one rank of a layout, played: the code that trains runs on tensors without memory, in a world
// without peers. So a machine of any size finds out what the rank would compute, hold and send.

#include <memory>
#include <vector>

#include "config/run_config.h"
#include "plan/play_record.h"

namespace athanor::inline plan {

struct PlayedStep {
  PlayRecord record;       ///< the step, without what was made before it
  int64_t kept_bytes = 0;  ///< weights, gradients and state, which the rank holds before and after the step
  /// The most that the step holds in addition, at one time.
  int64_t passing_bytes() const { return record.peak_bytes() - kept_bytes; }
  /// The same of the update alone, and of what comes before it.
  int64_t update_bytes() const;
  int64_t gradient_bytes() const;
  /// The part of gradient_bytes() that the forward or backward with the peak finds when it begins.
  int64_t activation_bytes() const;
};

/// Plays the first step of a run on CPUs. Products take the paths of this process (ops/matmul_paths.h), and scratch
/// memory is that of its number of threads.
/// A dispatch that a run would measure (moe.dispatch = "auto") is all_to_all.
/// @param config  resolved: data.seq_len is set and the model's fields are filled in.
/// @param expert_shares  the part of all choices that each expert gets; empty: equal parts.
/// @throws ConfigError with every fault of the layout.
std::unique_ptr<PlayedStep> play_step(const RunConfig& config, int num_ranks, int rank,
                                      std::vector<double> expert_shares = {});

}  // namespace athanor::inline plan
