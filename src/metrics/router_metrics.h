#pragma once
// Metrics of a step's routing, layer by layer, and the check of the first step's routing.

#include <cstdint>

#include "config/model_config.h"
#include "metrics/metrics.h"
#include "parallel/stage.h"

namespace athanor::inline metrics {

/// Fills the routers' part of `metrics`; does nothing for a dense model.
/// @param tokens  number of tokens in the step.
void describe_routers(const RouterCounts& counts, int64_t tokens, StepMetrics& metrics);

/// Refuses a router that gives each token equal scores for all experts: it sends all tokens to the first experts, and
/// its gradients are equal, which keeps it so. Warns of layers whose tokens all chose the same experts although their
/// scores differ.
/// @param counts  of the whole batch.
/// @param tokens  number of tokens in the step.
/// @throws ConfigError naming the layers, what was seen and the remedy.
void check_first_routing(const ModelConfig& model, const RouterCounts& counts, int64_t tokens);

}  // namespace athanor::inline metrics
