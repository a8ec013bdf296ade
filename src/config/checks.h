#pragma once
// Checks that need more than one field. Each answer is a line with the numbers and the remedy.

#include <string>
#include <vector>

#include "config/run_config.h"

namespace athanor {

/// Impossible shapes and combinations; empty if there are none.
std::vector<std::string> find_contradictions(const RunConfig& config);

/// Those of the model alone (also for a model that comes from a folder).
std::vector<std::string> find_contradictions(const ModelConfig& model);

/// Numbers of tokens of one stage, whose data.seq_len is known (0: not yet; then nothing is found), that would not fit
/// the integers that count them.
std::vector<std::string> find_overflows(const RunConfig& config);

/// Whether moe.balance can do what it says on one stage's batches, whose data.seq_len is known (0: not yet; then what
/// depends on it is passed over).
std::vector<std::string> find_balance_contradictions(const RunConfig& config);

}  // namespace athanor
