#pragma once
// Checks that need more than one field of a configuration. Each line that they return has the numbers and the remedy.

#include <string>
#include <vector>

#include "config/run_config.h"

namespace athanor::inline config {

/// True if the model's fields have their final values. Those of a model from a folder are defaults until it is read.
bool is_resolved(const ModelConfig& model);

/// Returns a line for each impossible shape or combination of fields; empty if there are none. Of a model from a folder
/// it looks at the fields once they are resolved. What depends on the
/// number of ranks is checked by find_layout_faults (layout/layout.h).
std::vector<std::string> find_contradictions(const RunConfig& config);

/// Returns the contradictions within the model alone (also used for a model that comes from a folder). If the
/// declarations of fields refuse some of their values, it returns lines for these only.
std::vector<std::string> find_contradictions(const ModelConfig& model);

/// Returns a line for each token count of one training phase that would overflow the integers that hold it.
/// @param config  the phase's configuration; if data.seq_len is still unknown (0), nothing is found.
std::vector<std::string> find_overflows(const RunConfig& config);

/// Returns a line for each reason why moe.balance cannot work on the batches of one training phase.
/// @param config  the phase's configuration; if data.seq_len is still unknown (0), checks that depend on it are
/// skipped.
std::vector<std::string> find_balance_contradictions(const RunConfig& config);

/// Returns why optimizer.scaling cannot be followed, a line for each reason: no base_width, an optimizer without a
/// rule, a family without a rule, a tied output layer behind a norm without weights, or a base_width without scaling.
/// Empty: it can. find_contradictions has these lines.
std::vector<std::string> find_scaling_contradictions(const RunConfig& config);

}  // namespace athanor::inline config
