#pragma once
// The start of a node's collector by a rank.

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

}  // namespace athanor::board
