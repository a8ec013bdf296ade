#pragma once
// The collector: one process of a node, which shows the node's board to others.
//
// It answers on a socket to processes of the node. For where sockets do not reach, it writes the node's report into the
// run's folder at an interval, and answers requests for stacks that it finds there (RequestWatch of stack_request.h). A
// rank starts it before it communicates (start_collector). It is no child of any rank, has none of their descriptors
// and its own session, so that no launcher waits for it; and it ends when the last process with a record has ended.
// Nothing of a run waits for it.

#include <sys/types.h>

#include <filesystem>

#include "board/place.h"

namespace athanor::board {

/// The descriptor with which a collector inherits its lock.
inline constexpr int kLockDescriptor = 3;
/// The word that makes the program a collector: `athanor board-collector MEMORY`.
inline constexpr const char* kCollectorCommand = "board-collector";

/// Starts the collector, unless the node has one. It is the program itself, started afresh: it has none of this
/// process's memory, of its descriptors or of its environment, and is no child of it. Returns when it runs, after some
/// milliseconds. The caller holds the lock of place.memory. @throws IoError, Error.
void start_collector(const std::filesystem::path& program, const Place& place);

/// Records the collector's number in the file of its lock, and reads it: 0 if there is none.
void write_collector(int lock, pid_t collector);
pid_t read_collector(const Place& place);

/// The program as a collector: `athanor board-collector MEMORY`. The lock of the node is descriptor kLockDescriptor.
/// Returns in the process that was called as soon as its child, which is the collector, has begun.
/// @return the exit code.
int run_collector(const std::filesystem::path& memory);

/// Returns the seconds between two reports of a node in the run's folder: at least 5, and long enough that all nodes of
/// a large job write no more than a hundred files in a second.
double report_interval_s(int job_ranks, int node_ranks);

/// Returns the seconds between two looks for requests in the run's folder: at least 1, and long enough that all nodes
/// of a large job list no more than a hundred folders in a second.
double look_interval_s(int job_ranks, int node_ranks);

}  // namespace athanor::board
