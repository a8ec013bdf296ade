#pragma once
// The frequencies of a model's rotary positions, scaled for longer contexts as its configuration specifies.

#include "config/model_config.h"
#include "ops/tensor.h"

namespace athanor::inline model {

struct Rotary {
  Tensor frequency;    ///< [head_dim/2], fp32: the angle from one position to the next, in radians
  double scale = 1.0;  ///< factor of cos and sin, and so of queries and keys
};

/// Returns the frequencies and scale for the model's rope_scaling.rope_type: "default" and "dynamic" are not scaled
/// (dynamic scaling begins only beyond max_position_embeddings), "linear" follows Chen et al. 2023, "yarn" Peng et al.
/// 2023, §3, and "llama3" Llama 3.1.
Rotary make_rotary(const ModelConfig& model);

}  // namespace athanor::inline model
