#include "base/collective.h"

namespace athanor {

const char* collective_name(Collective collective) {
  switch (collective) {
    case Collective::kAllGather: return "all_gather";
    case Collective::kAllReduce: return "all_reduce";
    case Collective::kAllToAll:
    case Collective::kUnevenAllToAll: return "all_to_all";
    case Collective::kBarrier: return "barrier";
    case Collective::kBroadcast: return "broadcast";
    case Collective::kReceive: return "receive";
    case Collective::kReduceScatter: return "reduce_scatter";
    case Collective::kSend: return "send";
  }
  return "?";
}

}  // namespace athanor
