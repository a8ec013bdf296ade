#pragma once
// Defaults that follow from other fields, so that no user is refused for a number that the user did not write.

#include <functional>
#include <string_view>

#include "config/run_config.h"

namespace athanor::inline config {

inline constexpr int64_t kDefaultWarmupSteps = 100;

/// Derives the fields that the user left out from those that the user set. It writes the values into `config`, also
/// into its training phases, so that the configuration as printed is the one that runs:
///   optimizer.warmup_steps  kDefaultWarmupSteps, but at most a tenth of the steps of the (first training phase's)
///                           schedule; 0 if the schedule counts tokens
///   optimizer.warmup_tokens a hundredth of schedule_tokens
///   model.num_experts       16, or num_experts_per_tok if that is more, in a family with experts
///   model.num_experts_per_tok  4, or num_experts if that is fewer, in a family with experts
///   train.dtype             "auto", which becomes bfloat16 if the CPU has instructions for it (has_fast_bf16), else
///                           float32
///   train.validation_interval  "auto": it becomes a number when the data are open (run/run_data.h)
///   optimizer.min_lr        a tenth of lr if lr is below the default min_lr
///   train.micro_batch_size  the largest number not above the default that divides global_batch_size and all sizes of
///                           a batch ramp
///                           (layout/fitted_batch.h takes a smaller one if the ranks need it)
/// micro_batch_size changes no result. global_batch_size would, and is never derived.
/// @param is_set  returns true if the user gave the field of this name ("optimizer.lr").
void resolve_defaults(RunConfig& config, const std::function<bool(std::string_view key)>& is_set);

/// Returns the largest divisor of a number that is not above `most`; 1 if either is below 1.
int64_t largest_divisor(int64_t number, int64_t most);
/// Returns what every batch size of the run, or of its first training phase, is a multiple of.
int64_t common_batch(const TrainConfig& train);

}  // namespace athanor::inline config
