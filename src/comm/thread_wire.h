#pragma once
// A job of several ranks as threads of one process: for tests of everything that communicates, without a launcher.

#include <cstdint>
#include <functional>
#include <memory>

#include "comm/wire.h"
#include "comm/world.h"

namespace athanor::comm {

/// What tests do to messages. Calls come from all ranks' threads, one at a time.
struct ThreadNetwork {
  /// False: the message never arrives, and its sender never hears of it.
  std::function<bool(int from, int to, int tag)> delivers;
  /// Polls of the receiver that a message, and word of it, may take at most; drawn from a fixed seed. Messages of one
  /// sender, receiver and tag stay in order.
  int max_delay_polls = 0;
  int max_tag = (1 << 23) - 1;  ///< of the wires; 32767 is what MPI promises
};

/// One wire for each rank. They may be used by one thread each.
std::vector<std::unique_ptr<Wire>> thread_wires(int size, const ThreadNetwork& network = {});

/// Runs `rank` once for each rank of a world of `size`, each on a thread of its own. When all have returned the first
/// exception, by rank, goes on. A rank that throws while others wait for it costs them the timeout.
void run_ranks(int size, const std::function<void(World&)>& rank, const WorldOptions& options = {},
               const ThreadNetwork& network = {});

}  // namespace athanor::comm
