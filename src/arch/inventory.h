#pragma once
// The inventory of a model: every parameter, as it follows from the configuration. The model, the plans of its memory,
// checkpoints and exports all use this one list.

#include <cstdint>
#include <vector>

#include "arch/parameter.h"
#include "config/model_config.h"

namespace athanor::inline arch {

/// Returns every parameter in the order of the forward pass. A tied output layer is not listed: it is the embedding.
/// @throws ConfigError if model.family does not exist.
std::vector<ParameterSpec> make_inventory(const ModelConfig& model);

/// Returns the parameter of this name. @throws Error if the model has none.
ParameterSpec find_parameter(const ModelConfig& model, const std::string& name);

/// Returns the number of elements of all parameters.
int64_t count_parameters(const ModelConfig& model);

/// Returns the number of elements that a token passes through: k of the E experts, and everything else (the "active"
/// parameters of the papers).
int64_t count_active_parameters(const ModelConfig& model);

}  // namespace athanor::inline arch
