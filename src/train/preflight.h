#pragma once
// Checks before step 1, so that no run fails at step 1,000 because of them.

#include "comm/world.h"
#include "config/run_config.h"
#include "dataset/dataset.h"
#include "layout/layout.h"
#include "parallel/parameters.h"

namespace athanor {

/// Fills data.seq_len from the data if it is 0, and checks that configuration and data fit: vocabulary, sequence
/// length.
/// @throws ConfigError with the numbers and the remedy.
void resolve_with_data(RunConfig& config, const Dataset& train);

/// Compares the memory that the ranks of this host will need with the host's free memory.
/// @throws ConfigError with the parts of the need, if it cannot fit.
void check_memory(const RunConfig& config, const comm::World& world, const Layout& layout);

/// Refuses a router whose weights are all zero: it sends every token to the first experts and learns nothing.
/// @throws CheckpointError naming it.
void refuse_zero_routers(const RunConfig& config, const ParameterStore& parameters);

/// Checks what moe.balance requires of the data's sequence length and of a model that came from a folder. @throws
/// ConfigError.
void refuse_unbalanceable(const RunConfig& config);

/// Returns the loss that a freshly initialised model should begin with: ln(vocabulary) + half the variance of its
/// logits (the final norm leaves hidden_size elements of mean square 1, so the variance is initializer_range² ·
/// hidden_size).
double expected_first_loss(const ModelConfig& model);

/// Logs a first loss that is farther from the expected one than chance explains.
void report_first_loss(const ModelConfig& model, double loss);

}  // namespace athanor
