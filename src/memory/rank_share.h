#pragma once
// The share of a rank: its threads, out of those of its host, and its part of the model.

#include <cstdint>
#include <string>
#include <vector>

#include "base/thread_share.h"
#include "train/train_state.h"

namespace athanor::inline memory {

/// Returns the number of ranks on this rank's host, itself included.
int count_ranks_of_host(const comm::World& world);

/// Returns the threads of this rank: `wanted`, unless that is 0. Then it is the number that this rank's environment
/// asks for. Without one, it is an equal share of the processors that the ranks of this host may run on
/// (base/thread_share.h). Collective over the world if `wanted` is 0.
ThreadShare threads_of_rank(comm::World& world, int64_t wanted);

/// Returns whether the ranks of this host, with this many threads each, have more threads than processors that any of
/// them may run on. Then their times depend on one another. Collective over the world.
bool share_cores(comm::World& world, int threads);

/// Returns true if fewer threads may be tried during the run (thread_trial.h): there are several, they multiply
/// matrices, and no number was asked for. No bits depend on the number.
bool may_try_threads(const ThreadShare& share);

/// Returns a text such as "2 threads (this process may run on 2 processors); waiting threads spin …": the number and
/// its reason, how threads wait, and whether the number may change.
/// @param on_each_rank  "2 threads on each rank".
std::string describe_threads(const ThreadShare& share, bool on_each_rank);

/// Returns the number of threads of every rank. Collective over the world.
std::vector<int64_t> gather_threads(comm::World& world, int threads);

/// Returns the number that most ranks have; of equally frequent numbers the largest.
int64_t usual_threads(const std::vector<int64_t>& threads);

/// Returns a text that names the first ranks with fewer threads than usual, and how many there are; "" if no rank has
/// fewer.
/// @param threads, hosts  of each rank.
std::string describe_fewer_threads(const std::vector<int64_t>& threads, const std::vector<std::string>& hosts);

/// Returns a text such as "8 ranks: replicate 1 x shard 8, expert 4; sharding ep_aware: 1.20GiB of state on each rank
/// (…)": the layout, and the bytes of weights, gradients and optimizer state that this rank holds.
std::string describe_layout(const TrainState& state);

}  // namespace athanor::inline memory
