#pragma once
// Checks the patterns of optimizer.no_weight_decay against the inventory of the whole model. A pipeline rank has only a
// part of the model, in which a correct pattern may match nothing.

#include <string>
#include <vector>

#include "config/run_config.h"

namespace athanor {

/// Returns an error message for each pattern that matches no parameter of the model; empty if all match. If model.from
/// is set, the model must be resolved first (resolve_model_from in checkpoint/model_identity.h).
std::vector<std::string> find_unmatched_decay_patterns(const RunConfig& config);

}  // namespace athanor
