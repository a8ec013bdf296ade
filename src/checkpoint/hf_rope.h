#pragma once
// Rotary positions in config.json: `rope_theta` and `rope_scaling` in version 4 of `transformers`, `rope_parameters` in
// version 5.

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "config/model_config.h"

namespace athanor {

/// Reads whichever a version wrote into `model`'s rope_theta and rope_scaling; as there, rope_scaling goes before
/// rope_parameters. Needs the model's max_position_embeddings. What is wrong or not computed goes to `problems`.
void read_hf_rope(const nlohmann::json& config, ModelConfig& model, std::vector<std::string>& problems);

/// Writes the members of both versions.
void write_hf_rope(const ModelConfig& model, nlohmann::json& config);

}  // namespace athanor
