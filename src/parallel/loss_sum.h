#pragma once
// Adds up the losses and counts of several ranks.

#include "comm/communicator.h"
#include "parallel/stage.h"

namespace athanor::inline parallel {

/// Sets `parts`, on every rank, to the sum over the group's ranks, on which the same tensors must be defined.
/// Collective: two all-reduces, one of fp64, one of int64. On a device the host does not wait: parts.on_device
/// gets the number of targets as a fourth element, and parts.num_targets stays.
void sum_over_ranks(comm::Communicator& ranks, LossParts& parts);

}  // namespace athanor::inline parallel
