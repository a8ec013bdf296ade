#pragma once
// Initial weights. Each element is a function of (seed, logical name, global element index), so that no layout can
// change it.

#include "arch/inventory.h"
#include "parallel/parameters.h"

namespace athanor {

/// Fills the master: norms with 1, everything else from a normal distribution of standard deviation initializer_range
/// (as `transformers` does for these families); then rounds it into the copy that forward reads.
void initialize_parameters(const ModelConfig& model, uint64_t seed, ParameterStore& parameters);

}  // namespace athanor
