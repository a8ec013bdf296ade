#pragma once
// Which model a checkpoint is of, so that a run folder of another model is told before its tensors are.

#include <nlohmann/json.hpp>
#include <string>

#include "config/model_config.h"

namespace athanor {

/// Every field of the configuration that shapes or interprets the weights. Left out: where the model came from, how it
/// was initialised, and for how long a sequence it is meant, which may change between two runs of one model.
nlohmann::json model_identity(const ModelConfig& model);

/// @throws CheckpointError "<where> is of another model: hidden_size is 256 there, 512 here; ..." if any field differs.
void check_same_model(const nlohmann::json& stored, const ModelConfig& expected, const std::string& where);

}  // namespace athanor
