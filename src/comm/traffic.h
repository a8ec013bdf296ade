#pragma once
// The bytes and calls of a communicator, counted when a call starts.

#include <cstdint>
#include <map>
#include <vector>

#include "base/collective.h"

namespace athanor::comm {

struct Traffic {
  int64_t calls = 0;
  /// By collective; an uneven all-to-all counts as kAllToAll.
  std::map<Collective, int64_t> calls_of;
  std::map<Collective, int64_t> bytes_of;  ///< sent by this rank
  std::vector<int64_t> bytes_to;           ///< sent to each rank of the group
  int64_t bytes_inside = 0;                ///< sent within this rank's supernode
  int64_t bytes_outside = 0;               ///< sent out of this rank's supernode
  double waited_s = 0;                     ///< in Pending::wait and barriers
  /// Collectives that were started and not waited for, now and at most. Those of check mode count too; sends and
  /// receives between two ranks do not.
  int64_t in_flight = 0, most_in_flight = 0;

  int64_t bytes() const { return bytes_inside + bytes_outside; }
};

}  // namespace athanor::comm
