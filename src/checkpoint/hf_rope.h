#pragma once
// Reads and writes rotary positions in config.json: `rope_theta` and `rope_scaling` in version 4 of `transformers`,
// `rope_parameters` in version 5.

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "config/families.h"

namespace athanor::inline checkpoint {

/// Reads the members of either version into `model`'s rope_theta and rope_scaling; as in transformers, rope_scaling
/// takes precedence over rope_parameters. The model's max_position_embeddings and windows must be set. Faults and what
/// we do not compute are added to `problems`.
///
/// In a family whose windows are unscaled, rope_parameters has an object for each kind of layer: "full_attention", to
/// which rope_scaling belongs, and "sliding_attention".
void read_hf_rope(const Family& family, const nlohmann::json& config, ModelConfig& model,
                  std::vector<std::string>& problems);

/// Writes the members of both versions.
void write_hf_rope(const Family& family, const ModelConfig& model, nlohmann::json& config);

}  // namespace athanor::inline checkpoint
