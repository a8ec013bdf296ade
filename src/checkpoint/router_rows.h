#pragma once
// Numbers of routers that a checkpoint stores in addition to its tensors: for each sparse layer, in the order of the
// layers, a row with one number for each expert.

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "config/model_config.h"

namespace athanor::inline checkpoint {

using RouterRows = std::vector<std::vector<float>>;

/// Member names in a checkpoint's state: the choices of each expert per token in the previous step (for moe.aux_scope
/// global), and the bias that is added to scores when experts are chosen (moe.bias_update_rate).
inline constexpr const char* kRouterPreviousShare = "router_previous_share";
inline constexpr const char* kRouterBias = "router_bias";

/// Returns the rows under `key` of a checkpoint's state; empty if there is no such key. `where` names the checkpoint in
/// messages.
/// @throws CheckpointError unless there is a finite number for each expert of each sparse layer of the model.
RouterRows read_router_rows(const nlohmann::json& state, const std::string& key, const ModelConfig& model,
                            const std::string& where);

/// Returns true if any number is not 0.
bool any_nonzero(const RouterRows& rows);

}  // namespace athanor::inline checkpoint
