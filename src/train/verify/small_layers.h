#pragma once
// Which layers of a model stand for all of them.

#include "config/run_config.h"

namespace athanor {

/// Without a pipeline: two layers, or the fewest from the first on that have both kinds where the model has both.
/// With one: of each stage as many as its share of the layers asks for (the shortest has one), and more where it has
/// both kinds; `parallelism.pipeline_split` says so. A model that is no longer than that stays as it is.
void shrink_layers(ModelConfig& model, ParallelismConfig& parallelism);

}  // namespace athanor
