#pragma once
// The model of a configuration at another width: what a rate is found with, before the model itself is trained.

#include <cstdint>

#include "config/run_config.h"

namespace athanor::inline tuning {

/// Returns the configuration with a model of this hidden_size. Heads and the widths of feed-forward layers and experts
/// grow in proportion; layers, experts, vocabulary and head_dim stay.
/// @param config  with a model that does not come from a folder.
/// @throws ConfigError if one of these numbers would not be whole, or if the model or its layout on the ranks is not
/// possible.
RunConfig with_width(const RunConfig& config, int64_t width, int num_ranks);

}  // namespace athanor::inline tuning
