#pragma once
// Numbers of routers that a checkpoint keeps beside its tensors: a row of one number for each expert, for each sparse
// layer.

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "config/model_config.h"

namespace athanor {

using RouterRows = std::vector<std::vector<float>>;

/// Members of a checkpoint's state.
inline constexpr const char* kRouterPreviousShare = "router_previous_share";
inline constexpr const char* kRouterBias = "router_bias";

/// The rows under `key`; empty if there are none.
/// @throws CheckpointError unless they are a finite number for each expert of each sparse layer of the model.
RouterRows read_router_rows(const nlohmann::json& state, const std::string& key, const ModelConfig& model,
                            const std::string& where);

/// Is a number other than 0?
bool any_nonzero(const RouterRows& rows);

}  // namespace athanor
