#pragma once
// Checks of [optimizer] that need several of its fields. Those that need the model's parameters are in
// layout/group_checks.h.

#include <string>
#include <vector>

#include "config/optimizer_config.h"

namespace athanor {

/// Returns the optimizers that the configuration names, each once: its own, those of groups, and AdamW for the rest of
/// Muon.
std::vector<std::string> named_optimizers(const OptimizerConfig& config);

/// Returns a message for each option that no optimizer of the configuration has, and for each group that is not whole;
/// empty if there is none.
std::vector<std::string> find_optimizer_contradictions(const OptimizerConfig& config);

}  // namespace athanor
