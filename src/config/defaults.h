#pragma once
// Defaults that follow from what is set beside them, so that nobody is refused for a number that he did not write.

#include <functional>
#include <string_view>

#include "config/run_config.h"

namespace athanor {

inline constexpr int64_t kDefaultWarmupSteps = 100;

/// Fits fields that nobody set to those that somebody did: optimizer.warmup_steps to the (first stage's) steps, a tenth
/// of them at most; dtype "auto" to this machine; min_lr to an lr below it, a tenth of that; micro_batch_size to the
/// batch that it divides. The last changes no result; global_batch_size would, and is never fitted. What the values are
/// then is written into the fields (in stages, too), so that the configuration as printed is the one that runs.
/// @param is_set  whether a field was given, by its name ("optimizer.lr").
void resolve_defaults(RunConfig& config, const std::function<bool(std::string_view key)>& is_set);

}  // namespace athanor
