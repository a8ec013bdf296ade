#pragma once
// Settings under which parameters cannot learn. Their gradients are zero except for rounding, so that the loss falls
// all the same. An optimizer that divides a gradient by its size (AdamW, and most others) makes full steps of noise,
// which depend on the layout.

#include <string>
#include <vector>

#include "config/run_config.h"

namespace athanor::inline config {

/// Returns a line for each kind of parameter that learns nothing, or nothing from the model's loss: its name, the
/// settings, and what to set. `config` is that of a training phase; data.seq_len may be 0 (not known yet).
std::vector<std::string> find_untrainable(const RunConfig& config);

}  // namespace athanor::inline config
