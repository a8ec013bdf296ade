#pragma once
// A job of several ranks as threads of one process, for tests of everything that communicates, without a launcher.

#include <cstdint>
#include <functional>
#include <memory>

#include "comm/wire.h"
#include "comm/world.h"

namespace athanor::comm {

/// Faults and delays that a test puts into messages. The functions are called from all ranks' threads, one at a time.
struct ThreadNetwork {
  /// False: the message never arrives, and its sender never learns that it was sent.
  std::function<bool(int from, int to, int tag)> delivers;
  /// The most polls of the receiver that a message, or notice of its completion, may take; drawn from a fixed seed.
  /// Messages of one sender, receiver and tag stay in order.
  int max_delay_polls = 0;
  int max_tag = (1 << 23) - 1;  ///< of the wires; MPI promises 32767
};

/// Returns one wire for each rank. Each wire may be used by one thread.
std::vector<std::unique_ptr<Wire>> thread_wires(int size, const ThreadNetwork& network = {});

/// Runs `rank` once for each rank of a world of `size`, each on a separate thread. After all have returned, the
/// exception of the lowest rank that threw, if any, is thrown again. If a rank throws while others wait for it, they
/// wait until the timeout.
void run_ranks(int size, const std::function<void(World&)>& rank, const WorldOptions& options = {},
               const ThreadNetwork& network = {});

}  // namespace athanor::comm
