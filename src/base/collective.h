#pragma once
// The collectives that ranks call, by name: communicators count their traffic by them, and formulas predict it.

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
  kUnevenAllToAll,
};

/// Returns a name like "all_reduce"; both kinds of all-to-all have one name.
const char* collective_name(Collective collective);

}  // namespace athanor
