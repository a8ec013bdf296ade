#pragma once
// What is shown of a step's routing, layer by layer, and what is refused of the first one.

#include <cstdint>

#include "config/model_config.h"
#include "parallel/stage.h"
#include "train/metrics.h"

namespace athanor {

/// Fills the routers' part of `metrics`; nothing for a dense model.
/// @param tokens  in the step.
void describe_routers(const RouterCounts& counts, int64_t tokens, StepMetrics& metrics);

/// A router whose scores are equal for every token sends all of them to the first experts, and gradients that are equal
/// keep it so. @throws ConfigError naming the layers, what was seen and the remedy.
/// Warns of layers whose tokens all chose the same experts, though their scores differ.
/// @param tokens  in the step.
void check_first_routing(const ModelConfig& model, const RouterCounts& counts, int64_t tokens);

}  // namespace athanor
