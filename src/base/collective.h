#pragma once
// The kinds of calls by which ranks communicate: collectives, and messages between two ranks. Communicators count their
// bytes for each kind.

#include <cstdint>

namespace athanor {

enum class Collective : int32_t {
  kAllGather,
  kAllReduce,
  kAllToAll,
  kBarrier,
  kBroadcast,
  kReceive,
  kReduceScatter,
  kSend,
  kUnevenAllToAll,  ///< the number of rows may differ for each pair of ranks
};

/// Returns a name like "all_reduce"; both kinds of all-to-all are called "all_to_all".
const char* collective_name(Collective collective);

}  // namespace athanor
