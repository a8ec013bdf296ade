#pragma once
// Finds the checkpoints and models of a run and describes each, for people: also those that are not finished, and those
// that a run moved aside. Nothing is locked or written, and a file may disappear in the meantime: the run may be
// training.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace athanor::inline checkpoint {

enum class CheckpointKind { kFull, kModel };

enum class CheckpointState {
  kThere,       ///< has the name of a checkpoint, so that a run may resume from it
  kUnfinished,  ///< is being written or deleted, or was when its process was killed
  kReplaced,    ///< kept until its successor of the same step is whole (base/file_moves.h)
  kAbandoned,   ///< moved aside by a run that went back
  kPutAside     ///< renamed by a start that refused it
};

const char* name_of(CheckpointKind kind);
const char* name_of(CheckpointState state);

/// A checkpoint's folder by its name alone.
struct FoundCheckpoint {
  std::filesystem::path path;
  int64_t step = 0;
  CheckpointKind kind = CheckpointKind::kFull;
  CheckpointState state = CheckpointState::kThere;
};

struct DescribedCheckpoint {
  FoundCheckpoint found;
  uint64_t num_bytes = 0;  ///< the sizes of all files, as they are now
  int64_t num_files = 0;
  int64_t num_ranks = 0;  ///< that wrote a full checkpoint, by the names of its files; 0 for a model
  int64_t written_s = 0;  ///< Unix time of the last change of its manifest or weights; 0 if there is none
  std::optional<int64_t> tokens_seen;
  std::string version, commit;  ///< those of the program that wrote it; empty if it does not name them
  std::string problem;          ///< why what it states could not be read; empty if it could
};

/// Finds the checkpoints that `path` names: a run folder, its folder of checkpoints or of models, or one checkpoint or
/// model, also as find_step_folder (checkpoint/step_words.h) finds it. Newest first; of one step the full checkpoint is
/// first. Empty if the run has none.
/// @throws CheckpointError if the path is none of these; IoError.
std::vector<FoundCheckpoint> find_checkpoints(const std::filesystem::path& named);

/// Reads the sizes of its files and the beginning of its manifest. Returns nothing if the folder has disappeared.
std::optional<DescribedCheckpoint> describe_checkpoint(const FoundCheckpoint& found);

/// Returns the bytes of all files below a folder; files that disappear in the meantime do not count.
uint64_t bytes_below(const std::filesystem::path& folder);

}  // namespace athanor::inline checkpoint
