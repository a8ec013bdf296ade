#pragma once
// What a run tells at its start.

#include "base/thread_share.h"
#include "train/train_state.h"

namespace athanor::inline run {

/// Tells which hosts the ranks are on, over which network they talk, and on which CPUs they compute. It comes before
/// the checks that read data and need memory: what they find may be due to a host. Collective.
void say_where_it_runs(comm::World& world);

/// Tells how large the model is, which optimizer updates what, how many threads each rank has, and how the ranks share
/// the work. Collective.
void say_what_starts(const TrainState& state, const ThreadShare& threads);

}  // namespace athanor::inline run
