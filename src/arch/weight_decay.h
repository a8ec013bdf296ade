#pragma once
// Which parameters optimizer.no_weight_decay names. Patterns are held against the whole model's inventory: a rank of a
// pipeline has a part of it, in which a right pattern may match nothing.

#include <string>
#include <vector>

#include "config/run_config.h"

namespace athanor {

/// A line for each pattern that matches no parameter of the model; none where all do. The model is to be resolved
/// (model.from) before.
std::vector<std::string> find_unmatched_decay_patterns(const RunConfig& config);

}  // namespace athanor
