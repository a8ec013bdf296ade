#pragma once
// What is checked before step 1, so that no run dies of it at step 1,000.

#include "arch/layout.h"
#include "comm/world.h"
#include "config/run_config.h"
#include "data/dataset.h"
#include "parallel/parameters.h"

namespace athanor {

/// Fills data.seq_len from the data where it is 0 and holds configuration and data against each other.
/// @throws ConfigError with the numbers and the remedy: vocabulary, sequence length.
void resolve_with_data(RunConfig& config, const Dataset& train);

/// Compares the memory that the ranks of this host will need with what it has free.
/// @throws ConfigError with the parts of the need, if it cannot fit.
void check_memory(const RunConfig& config, const comm::World& world, const Layout& layout);

/// A router whose weights are all zero sends every token to the first experts and learns nothing.
/// @throws CheckpointError naming it.
void refuse_zero_routers(const RunConfig& config, const ParameterStore& parameters);

/// What moe.balance needs of the data's sequence length and of a model that came from a folder. @throws ConfigError.
void refuse_unbalanceable(const RunConfig& config);

/// The loss that a freshly initialised model should begin with: ln(vocabulary) + half the variance of its logits
/// (the final norm leaves hidden_size elements of mean square 1, so that is initializer_range² · hidden_size).
double expected_first_loss(const ModelConfig& model);

/// Names a first loss that is farther from that than chance explains.
void report_first_loss(const ModelConfig& model, double loss);

}  // namespace athanor
