#pragma once
// The parameter groups of a run whose rates follow the width of its model (optimizer.scaling).

#include <vector>

#include "layout/parameter_groups.h"

namespace athanor::inline layout {

/// Multiplies the lr_scale of each parameter by its rate_factor (arch/width_scaling.h): before each group come the
/// groups of those of its parameters whose factor is not 1. Their weight_decay is divided by the factor, so that an
/// update takes the same share of a weight at every width. With optimizer.scaling "none" the groups stay as they are.
/// @param config  of the run, with a model that is resolved.
std::vector<ParameterGroup> scaled_by_width(std::vector<ParameterGroup> groups, const RunConfig& config);

}  // namespace athanor::inline layout
