#pragma once
// Selects layers of a model that represent all of them.

#include "config/run_config.h"

namespace athanor::inline verify {

/// Reduces the number of layers. Without a pipeline it keeps two layers, or, if the model has both kinds of layers, the
/// fewest from the first on that have both. With a pipeline it keeps of each stage a number in proportion to the
/// stage's share of the layers (one of the shortest, at most three), and one more if that would leave out one of the
/// stage's kinds; it writes the result to `parallelism.pipeline_split`. A model that is no longer than that stays as it
/// is.
void shrink_layers(ModelConfig& model, ParallelismConfig& parallelism);

}  // namespace athanor::inline verify
