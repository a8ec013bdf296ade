#pragma once
// Checks that a start makes before it takes a step, so that no run fails at step 1,000 because of what they find. They
// send nothing, except that ranks on devices compare their memory.

#include "comm/world.h"
#include "config/run_config.h"
#include "dataset/dataset.h"
#include "layout/layout.h"
#include "parallel/parameters.h"

namespace athanor::inline memory {

/// Fills data.seq_len from the data if it is 0, and checks that configuration and data fit: sequence length,
/// vocabulary, and token counts that integers can hold (find_overflows).
/// @throws ConfigError with the numbers and the remedy.
void resolve_with_data(RunConfig& config, const Dataset& train);

/// Does the same with the manifest of the run's first source if data.seq_len is 0: for commands that need the length of
/// an instance, and no instances. @throws ConfigError, also if there is no source; DataError, IoError.
void take_seq_len_of_data(RunConfig& config);

/// Compares the memory that the ranks of this host will need, as a played step finds it (plan/rank_memory.h), with the
/// host's free memory, and logs both, with what this process takes already: code, libtorch, MPI. To be called before
/// the state is allocated.
/// @throws ConfigError with the parts of the need, on the ranks of a host where it does not fit.
/// On devices, what each rank needs there is compared with what is free there (device_memory.h), which is collective.
void check_memory(const RunConfig& config, comm::World& world, const Layout& layout, at::Device device);

/// Refuses a router whose weights are all zero: it sends every token to the first experts and learns nothing.
/// @throws CheckpointError naming it, on the ranks that hold it.
void refuse_zero_routers(const RunConfig& config, const ParameterStore& parameters);

/// Checks what moe.balance requires of the data's sequence length and of a model that came from a folder.
/// @throws ConfigError.
void refuse_unbalanceable(const RunConfig& config);

/// Returns the loss for each target, in nats, that a model with random weights should begin with: ln(vocabulary) + half
/// the variance of its logits (the final norm leaves hidden_size elements of mean square 1, so the variance is
/// initializer_range² · hidden_size; optimizer.scaling multiplies the deviation by `width_ratio`).
double expected_first_loss(const ModelConfig& model, double width_ratio = 1);

/// Logs a warning if the first loss is farther from the expected one than chance explains (half a nat).
void report_first_loss(const ModelConfig& model, double width_ratio, double loss);

}  // namespace athanor::inline memory
