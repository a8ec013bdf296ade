#pragma once
// Removes checkpoints or models of a run on behalf of a user.

#include <cstdint>
#include <filesystem>
#include <vector>

#include "checkpoint/listing.h"

namespace athanor::inline checkpoint {

struct RemovalRequest {
  std::filesystem::path run;  ///< the run's folder
  std::vector<int64_t> steps;
  CheckpointKind kind = CheckpointKind::kFull;
  bool force = false;   ///< also remove the newest one that is whole; then none is verified
  int num_threads = 1;  ///< that verify
};

struct RemovedCheckpoint {
  std::filesystem::path path;
  uint64_t num_bytes = 0;
};

/// Removes the checkpoints of these steps. Holds the run's lock meanwhile, so that no training begins. Verifies from
/// the newest on until one is whole, and refuses to remove that one. Each is renamed before its files are deleted: if
/// the process is killed half-way, what is left does not look like a checkpoint, and the next start deletes it.
///
/// Fault points: "checkpoint.hide" before the name is taken away, and "checkpoint.remove" after it, as in rotation.h.
/// @return what was removed, in the order of the request.
/// @throws ConfigError if a training holds the lock, if a step has no checkpoint, or if the newest whole checkpoint is
///         among them. (A checkpoint of a newer format counts as whole.) Nothing was removed then.
/// @throws IoError.
std::vector<RemovedCheckpoint> remove_checkpoints(const RemovalRequest& request);

}  // namespace athanor::inline checkpoint
