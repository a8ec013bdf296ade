#pragma once
// Initial weights. Each element is a function of (seed, logical name, global element index), so that no layout can
// change it.

#include "arch/inventory.h"
#include "parallel/parameters.h"

namespace athanor::inline model {

/// Fills the master of the slices that this rank holds, and the weights that forward reads: norms with 1, everything
/// else from a normal distribution of mean 0 and standard deviation initializer_range (as `transformers` does for these
/// families). Sends nothing.
/// @param width_ratio  optimizer.base_width / hidden_size; multiplies deviations and norms by their initial_factor
///                     (arch/width_scaling.h). 1 changes nothing.
void initialize_parameters(const ModelConfig& model, uint64_t seed, ParameterStore& parameters, double width_ratio = 1);

}  // namespace athanor::inline model
