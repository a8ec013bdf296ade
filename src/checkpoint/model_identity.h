#pragma once
// Which model a checkpoint is of, so that a run folder of another model is told before its tensors are.

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "config/run_config.h"

namespace athanor {

/// Every field of the configuration that shapes or interprets the weights. Left out: where the model came from, how it
/// was initialised, and for how long a sequence it is meant, which may change between two runs of one model.
nlohmann::json model_identity(const ModelConfig& model);

/// Compares them field by field.
/// @param allowed  fields that may differ, as checkpoint.allow_model_change has them: "rope_scaling" stands for all of
///                 its fields, and vocab_size may grow but not shrink.
/// @return those that do, for the log: "rope_theta is 10000.0 there, 500000.0 here".
/// @throws CheckpointError "<where> is of another model: hidden_size is 256 there, 512 here; ..." if any other field
///         differs, with the way to allow it where there is one.
std::vector<std::string> check_same_model(const nlohmann::json& stored, const ModelConfig& expected,
                                          const std::string& where, const std::vector<std::string>& allowed = {});

/// The model that model.from names takes the place of `config.model`. Of what is written beside it
/// (ModelConfig::written) only fields that checkpoint.allow_model_change names are taken; vocab_size may grow but not
/// shrink. Only config.json is read. Does nothing where model.from is empty.
/// @return for the log: what is written and differs, and whether it was taken.
/// @throws CheckpointError: there is no such folder, it is no model, or it is none with those changes.
std::vector<std::string> resolve_model_from(RunConfig& config);

}  // namespace athanor
