#pragma once
// What a configuration leaves open until the number of ranks is known.

#include <string>
#include <vector>

#include "config/run_config.h"

namespace athanor::inline layout {

/// Takes a smaller train.micro_batch_size, if it is not set and does not divide the sequences of a data rank: the
/// largest number below it that does. A training phase with another batch is treated in the same way. Nothing changes
/// if the data ranks do not divide the batch, or with moe.balance, whose groups depend on microbatches.
/// @return the faults of the layout then (find_layout_faults).
std::vector<std::string> fit_to_ranks(RunConfig& config, int world_size);

}  // namespace athanor::inline layout
