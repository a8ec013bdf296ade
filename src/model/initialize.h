#pragma once
// Initial weights. Each element is a function of (seed, logical name, global element index), so that no layout can
// change it.

#include "arch/inventory.h"
#include "parallel/parameters.h"

namespace athanor {

/// Fills the master of the slices that this rank holds, and the weights that forward reads: norms with 1, everything
/// else from a normal distribution of mean 0 and standard deviation initializer_range (as `transformers` does for these
/// families). Sends nothing.
void initialize_parameters(const ModelConfig& model, uint64_t seed, ParameterStore& parameters);

}  // namespace athanor
