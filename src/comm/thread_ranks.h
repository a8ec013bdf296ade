#pragma once
// A job of several ranks as threads of one process, for tests of everything that communicates, without a launcher.

#include <chrono>
#include <functional>

#include "comm/world.h"
#include "wire/thread_wire.h"

namespace athanor::comm {

/// Runs `rank` once for each rank of a world of `size`, each on a separate thread (a single one on the caller's). After
/// all have returned, the exception of the lowest rank that threw, if any, is thrown again. If a rank throws while
/// others wait for it, they wait until the timeout: five minutes unless `options` has another.
void run_ranks(int size, const std::function<void(World&)>& rank,
               const WorldOptions& options = {.timeout = std::chrono::minutes(5)}, const ThreadNetwork& network = {});

}  // namespace athanor::comm
