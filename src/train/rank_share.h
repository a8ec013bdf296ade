#pragma once
// What of its machine a rank may take, and what of the model it holds.

#include <string>

#include "train/train_state.h"

namespace athanor {

/// Ranks of this one's host, itself among them.
int count_ranks_of_host(const comm::World& world);

/// `wanted`, or, where that is 0, an even share of the processors that the ranks of this host may run on; never more
/// than this process may. Collective where it is 0.
int threads_of_rank(comm::World& world, int64_t wanted);

/// "8 ranks: replicate 1 x shard 8, expert 4; sharding ep_aware: … a rank": the layout and the bytes of state that this
/// rank holds.
std::string describe_layout(const TrainState& state);

}  // namespace athanor
