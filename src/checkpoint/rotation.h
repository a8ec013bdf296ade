#pragma once
// A run's folder of checkpoints, step-00000500 and so on: which are there, which of them to trust, which to delete.
//
// At any moment, also when the process is killed, the folder holds the newest checkpoint that was ever whole: an old
// one goes only after a new one is synced. The one exception is a disk too small for a third beside two: then the older
// goes first, and only if the newer verifies.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "checkpoint/reader.h"
#include "checkpoint/writer.h"

namespace athanor {

struct StepFolder {
  int64_t step;
  std::filesystem::path path;
};

/// "step-00000500".
std::string step_folder_name(int64_t step);

/// The checkpoints in `folder`, newest first; none if it is not there. What is in them is not looked at.
std::vector<StepFolder> list_checkpoints(const std::filesystem::path& folder);

/// As list_checkpoints, and those that were to be replaced when their process was killed, under the names they wait by:
/// clean_leftovers is going to put them back.
std::vector<StepFolder> list_recoverable(const std::filesystem::path& folder);

/// The number in "step-00000500"; none if it is no such name.
std::optional<int64_t> step_of_folder_name(std::string_view name);

/// Ends what killed processes left in `folder`: unfinished checkpoints are removed, one that was about to be replaced
/// is put back. Call it at the start of a run, before anything here that writes.
void clean_leftovers(const std::filesystem::path& folder);

/// Opens a checkpoint and compares every piece with its hash. Collective: each member verifies a share; all agree.
/// @throws Error on every member, naming what is damaged.
CheckpointReader open_verified(const std::filesystem::path& path, const Team& team = {});

/// The newest checkpoint (of list_recoverable) whose every hash is right. One that is damaged is named by a warning and
/// passed over. Each member of `team` verifies a share of the pieces; all agree.
std::optional<CheckpointReader> open_newest_verified(const std::filesystem::path& folder, const Team& team = {});

struct RotationOptions {
  size_t keep = 2;
  WriteOptions write;
  /// Bytes that a folder's disk still takes.
  std::function<uint64_t(const std::filesystem::path&)> free_bytes = free_disk_bytes;
  Team team = {};  ///< all its members make the same calls
};

/// Writes the checkpoint of `step` into `folder` and then deletes all but the newest `keep` of those up to `step`.
/// Those of later steps (a run that went back) are left alone; one of the same step is replaced. An old one that cannot
/// be deleted costs a warning: the new one is written.
/// Fault points: "checkpoint.hide", where an old one loses its name (enospc and eio play a refusal), and
/// "checkpoint.remove" after it.
/// @throws IoError with disk_full() if there is no room: every older checkpoint is then still there, except one that
/// had
///         to go first (see above).
void save_rotating(const std::filesystem::path& folder, int64_t step, const std::vector<PieceView>& pieces,
                   const nlohmann::json& model, const nlohmann::json& state, const RotationOptions& options = {});

}  // namespace athanor
