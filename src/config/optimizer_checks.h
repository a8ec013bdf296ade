#pragma once
// Checks of [optimizer] that need several of its fields. Those that need the model's parameters are in
// layout/group_checks.h.

#include <string>
#include <vector>

#include "config/optimizer_config.h"

namespace athanor::inline config {

/// Returns the optimizers that the configuration names, each once: its own, those of groups, and AdamW for the rest of
/// Muon.
std::vector<std::string> named_optimizers(const OptimizerConfig& config);

/// Sets each option that no optimizer of the configuration has to its default, if it would have one with another of
/// these values of optimizer.name. Options that are still foreign are found by find_optimizer_contradictions.
void drop_options_of_others(OptimizerConfig& config, const std::vector<std::string>& names);

/// Returns a message for each rate, the run's and those of groups, whose product with its weight decay is 1 or more:
/// decoupled decay multiplies a weight by 1 − lr · weight_decay, so the weight would be 0 or change its sign in each
/// update. LAMB's decay is a part of a direction whose length is chosen, and has no such limit.
/// @param peak_lr  the highest rate of a training phase; those of groups are the same multiples of it as of config.lr.
std::vector<std::string> find_decay_faults(const OptimizerConfig& config, double peak_lr);

/// Returns a message for each option that no optimizer of the configuration has, and for each group that is not whole;
/// empty if there is none.
std::vector<std::string> find_optimizer_contradictions(const OptimizerConfig& config);

}  // namespace athanor::inline config
