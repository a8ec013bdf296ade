#pragma once
// athanor bench comm in a world of ranks.

#include "bench/arguments.h"
#include "comm/world.h"

namespace athanor::bench {

/// Verifies collectives, then measures them. Collective over the world; rank 0 prints, and writes given.json. On
/// devices each rank takes its own, which becomes the thread's current one (run/rank_devices.h).
void measure_comm(comm::World& world, const BenchCommArguments& given);

}  // namespace athanor::bench
