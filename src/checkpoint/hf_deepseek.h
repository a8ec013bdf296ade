#pragma once
// The members of config.json that DeepSeek's classes have: sizes of latents, dense layers, shared experts and groups.

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "config/families.h"

namespace athanor::inline checkpoint {

/// Read the members into `model`, whose other fields are set. Faults are added to `problems`.
void read_latents(const nlohmann::json& json, ModelConfig& model, std::vector<std::string>& problems);
void read_deepseek_experts(const Family& family, const nlohmann::json& json, ModelConfig& model,
                           std::vector<std::string>& problems);

void write_latents(const ModelConfig& model, nlohmann::json& json);
void write_deepseek_experts(const Family& family, const ModelConfig& model, nlohmann::json& json);

}  // namespace athanor::inline checkpoint
