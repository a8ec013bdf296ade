#pragma once
// Manages a run's folder of checkpoints, step-00000500 and so on: which exist, which to trust, which to delete.
//
// At any moment, even if the process is killed, the folder holds the newest checkpoint that was ever whole: an old one
// is deleted only after a new one is synced. There is one exception, a disk too small for a third checkpoint next to
// two: then the older one is deleted first, and only if the newer one verifies.
//
// A checkpoint whose hashes are right and whose numbers are not finite is renamed and stays (put_aside).

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "checkpoint/reader.h"
#include "checkpoint/writer.h"

namespace athanor::inline checkpoint {

struct StepFolder {
  int64_t step;
  std::filesystem::path path;
};

/// Returns the folder name of a step: "step-00000500".
std::string step_folder_name(int64_t step);

/// Returns the checkpoints in `folder`, newest first; none if the folder does not exist. Does not read the checkpoints.
std::vector<StepFolder> list_checkpoints(const std::filesystem::path& folder);

/// Returns the result of list_checkpoints and, under their temporary names, the checkpoints that were being replaced
/// when their process was killed: clean_leftovers will put them back.
std::vector<StepFolder> list_recoverable(const std::filesystem::path& folder);

/// Returns the step number of "step-00000500"; none if the name has another form.
std::optional<int64_t> step_of_folder_name(std::string_view name);

/// Cleans up what killed processes left in `folder`: removes unfinished checkpoints and puts back one that was about to
/// be replaced. Call it at the start of a run, before any function of this header that writes.
void clean_leftovers(const std::filesystem::path& folder);

/// Takes a checkpoint's name away, before its files are removed: a process that is killed half-way then leaves nothing
/// that looks like a checkpoint, and clean_leftovers removes what it left. The new name is on the disk when this
/// returns, so that no file disappears under the old one. Fault point: "checkpoint.hide".
/// @return the new path.
/// @throws IoError.
std::filesystem::path hide_checkpoint(const std::filesystem::path& path);

/// Renames a checkpoint that is not finite: "not-finite-step-00000500", or "not-finite-2-step-00000500" and so on if
/// that name is taken. Under the new name it is no checkpoint for the other functions of this header, which neither
/// load nor delete it. Before that, the reason is written into it as not-finite.json: if the process is killed in
/// between, the checkpoint still has its name. Call it after clean_leftovers. Not collective.
/// @param checkpoint  as list_recoverable names it.
/// @return the new path.
/// @throws IoError.
std::filesystem::path put_aside(const std::filesystem::path& checkpoint, const NotFinite& first);

/// Opens a checkpoint and compares every piece with its hash. Collective: each member verifies a share, and all get the
/// same result.
/// @throws the same Error on every member, naming what is damaged (Team::on_all).
CheckpointReader open_verified(const std::filesystem::path& path, const Team& team = {});

/// Opens the newest checkpoint (of list_recoverable) whose hashes are all right. Skips one that is damaged or cannot be
/// read with a warning that names it; returns nothing if none is left. Collective: each member of `team` verifies a
/// share of the pieces, and all get the same result.
/// @throws CheckpointError on every member for one of a newer format (open_unless_damaged); IoError if none is left and
/// one could not be read.
std::optional<CheckpointReader> open_newest_verified(const std::filesystem::path& folder, const Team& team = {});

struct RotationOptions {
  size_t keep = 2;         ///< the newest ones; at least 1
  int64_t keep_every = 0;  ///< checkpoints of steps that are multiples of this are never removed; 0: none
  WriteOptions write;
  /// Returns the number of bytes that the folder's disk can still take.
  std::function<uint64_t(const std::filesystem::path&)> free_bytes = free_disk_bytes;
  Team team = {};  ///< all members make the same calls
};

/// Writes the checkpoint of `step` into `folder` and then deletes all but the newest `keep` of those up to `step`.
/// Checkpoints of later steps (from a run that went back) are left alone; one of the same step is replaced. If an old
/// one cannot be deleted, the log warns: the new one is written. `pieces` are those of this member; model and state are
/// as in write_checkpoint. Collective over options.team.
///
/// Fault points: "checkpoint.hide", where an old one loses its name (enospc and eio simulate a refusal), and
/// "checkpoint.remove" after it.
/// @throws IoError with disk_full() if there is no room: every older checkpoint then still exists, except one that had
/// to be deleted first (see above).
void save_rotating(const std::filesystem::path& folder, int64_t step, const std::vector<PieceView>& pieces,
                   const nlohmann::json& model, const nlohmann::json& state, const RotationOptions& options = {});

}  // namespace athanor::inline checkpoint
