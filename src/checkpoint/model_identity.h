#pragma once
// Identifies the model of a checkpoint, so that a run folder of another model is recognised before its tensors are
// read.

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "config/run_config.h"

namespace athanor::inline checkpoint {

/// Returns an object of every field of the configuration that shapes or interprets the weights, with keys such as
/// "hidden_size" and "rope_scaling.factor". It leaves out where the model came from, how it was initialised, and for
/// how long a sequence it is meant, which may change between two runs of one model.
nlohmann::json model_identity(const ModelConfig& model);

/// Compares a stored identity with the expected model, field by field. A field that was added to the configuration
/// later, and that the identity lacks, counts as its default.
/// @param where    names the stored identity in messages.
/// @param allowed  fields that may differ, as in checkpoint.allow_model_change: "rope_scaling" stands for all of its
/// fields, and vocab_size may grow but not shrink.
/// @return the allowed differences, for the log: "rope_theta is 10000.0 there, 500000.0 here".
/// @throws CheckpointError "<where> is of another model: hidden_size is 256 there, 512 here; ..." if any other field
/// differs; the message gives the way to allow it if there is one.
std::vector<std::string> check_same_model(const nlohmann::json& stored, const ModelConfig& expected,
                                          const std::string& where, const std::vector<std::string>& allowed = {});

/// Replaces `config.model` by the model that model.from names. Fields written in the configuration
/// (ModelConfig::written) are kept only if checkpoint.allow_model_change names them; vocab_size may grow but not
/// shrink. Reads only config.json of the folder. Does nothing if model.from is empty.
/// @return for the log: the written fields that differ, and whether they were kept.
/// @throws CheckpointError if there is no such folder, it is no model, or the model is invalid with those changes.
std::vector<std::string> resolve_model_from(RunConfig& config);

}  // namespace athanor::inline checkpoint
