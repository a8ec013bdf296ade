#pragma once
// The losses and counts of several ranks, added up.

#include "comm/communicator.h"
#include "parallel/stage.h"

namespace athanor {

/// On every rank, `parts` becomes the sum over the group's. Two all-reduces: one of fp64, one of int64.
void sum_over_ranks(comm::Communicator& ranks, LossParts& parts);

}  // namespace athanor
