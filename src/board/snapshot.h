#pragma once
// Reads the records of a node.

#include <functional>

#include "board/board.h"
#include "board/node_report.h"

namespace athanor::board {

/// The members of LiveState, all of one moment unless `torn`.
struct LiveCopy {
  uint32_t phase = 0;
  int64_t step = 0, phase_ns = 0, changed_ns = 0, wait_number = 0;
  int32_t microbatch = -1, wait_group = -1, wait_kind = 0, wait_peer = -1;
  bool torn = false;
};
/// Never waits for the writer: if that was stopped in the midst of a change, the values are taken as they stand.
LiveCopy copy_live(const LiveState& live);

/// Returns what the node's records hold now, in the order of ranks; `interval_s` is left at 0. Groups are read only of
/// ranks that are there or gone.
NodeReport snapshot(const SharedMemory& memory);

/// Returns true if a process that has a record is there.
bool has_processes(const SharedMemory& memory);

/// Calls `visit` with each record that has a process, whether it is there or not, unless it ended in order.
void for_each_live(const SharedMemory& memory, const std::function<void(uint32_t slot, const Record&)>& visit);

}  // namespace athanor::board
