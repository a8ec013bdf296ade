#pragma once
// What of its machine a rank may take, and what of the model it holds.

#include <string>

#include "base/thread_share.h"
#include "train/train_state.h"

namespace athanor {

/// Ranks of this one's host, itself among them.
int count_ranks_of_host(const comm::World& world);

/// `wanted`, or, where that is 0, what this rank's environment asks for or its even share of the processors that the
/// ranks of this host may run on (base/thread_share.h). Collective where it is 0.
ThreadShare threads_of_rank(comm::World& world, int64_t wanted);

/// Whether fewer threads may be tried while the run goes on: nobody asked for a number. No bits depend on it.
bool may_try_threads(const ThreadShare& share);

/// "2 threads (this process may run on 2 processors); waiting threads spin …": which number, why, how they wait, and
/// whether it stays.
std::string describe_threads(const ThreadShare& share, bool on_each_rank);

/// "8 ranks: replicate 1 x shard 8, expert 4; sharding ep_aware: … a rank": the layout and the bytes of state that this
/// rank holds.
std::string describe_layout(const TrainState& state);

}  // namespace athanor
