#pragma once
// Messages between threads of one process, for tests of everything that communicates, without a launcher.

#include <cstdint>
#include <functional>
#include <memory>

#include "wire/wire.h"

namespace athanor::comm {

/// Faults and delays that a test puts into messages. The functions are called from all ranks' threads, one at a time.
struct ThreadNetwork {
  /// If it returns false, the message never arrives, and its sender never learns that it was sent. Null: all arrive.
  std::function<bool(int from, int to, int tag)> delivers;
  /// The most polls of the receiver that a message, or notice of its completion, may take; drawn from a fixed seed.
  /// Messages of one sender, receiver and tag stay in order.
  int max_delay_polls = 0;
  int max_tag = (1 << 23) - 1;  ///< the wires' limit; MPI promises 32767
};

/// Returns one wire for each rank. Each wire may be used by one thread.
std::vector<std::unique_ptr<Wire>> thread_wires(int size, const ThreadNetwork& network = {});

}  // namespace athanor::comm
