#pragma once
// Decides where a run continues: from what its folder holds, what checkpoint.resume asks for, and what has happened
// before.
//
// A folder that holds anything of a run is resumed or refused, never overwritten.
// - checkpoint.resume = "never" refuses such a folder.
// - "auto" continues from the run's newest full checkpoint that verifies; if the run keeps no full checkpoints, or its
// models are newer than the full checkpoints that were left, from its newest model-only one, with fresh moments; if
// nothing was ever saved, from step 0 again.
// - A path in another folder is where a run begins. Once the run has saved something itself, it continues from that.
// A local checkpoint (local_start.h) that is newer than any of these is taken instead, also if nothing else is left.
// - A path in the run's own folder means going back: newer checkpoints are moved aside, not deleted. If the same
// command is given again, the run continues from what was saved since.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "config/run_config.h"

namespace athanor::inline saves {

struct ResumePoint {
  enum class From {
    kNothing,  ///< step 0: fresh weights, or those of model.from
    kNewest,   ///< the run's newest full checkpoint that verifies
    kPath,     ///< `path`, a full checkpoint or a model-only one
  };
  From from = From::kNothing;
  std::filesystem::path path;  ///< empty unless `from` is kPath
  std::string asked;           ///< checkpoint.resume as a place inside the folder, if it is followed; else ""
  /// the run's own checkpoints that are newer than `path`: to be moved aside
  std::vector<std::filesystem::path> abandoned;
  /// if `path` is the run's newest model, the one before it, which an error message names; else empty
  std::filesystem::path older;
  int64_t step =
      -1;  ///< local checkpoints of later steps are newer than what it continues from; -1: all of this branch are
  /// The attempt in which this branch of the run began: local checkpoints (checkpoint/local_store.h) of earlier
  /// attempts are of another one.
  int64_t branch = 1;
  /// If not 0, local checkpoints count that come from this attempt or a later one, instead of from `branch` on. It is
  /// the branch that the run has now, while `path` would begin another one.
  int64_t branch_there_is = 0;
  bool anew = false;    ///< checkpoint.resume names `path`: another branch of the run begins there (branch.h)
  int64_t attempt = 1;  ///< number of this start of the run, from 1
  std::vector<std::string> notes;           ///< for the log: what was skipped, and why
  std::vector<std::string> notes_of_local;  ///< the same, if it continues from a local checkpoint instead
  /// Why the run may continue only from a local checkpoint: what it had saved elsewhere is gone. Empty: there is no
  /// such reason.
  std::string refusal;

  int64_t branch_of_local() const { return branch_there_is > 0 ? branch_there_is : branch; }
  /// To be called if there is no local checkpoint to continue from. @throws CheckpointError with the refusal.
  void require_allowed() const;

  /// Return the members as text, which one rank sends to the others, and make a ResumePoint of it again.
  std::string to_text() const;
  static ResumePoint from_text(const std::string& text);
};

/// Plans the beginning of a run in train.run_dir and changes nothing. Only one rank may call it: at the same moment a
/// network folder may look different to different ranks. Checkpoints are not verified here.
/// @throws ConfigError or CheckpointError for a folder that must be left alone, or for a path that is no checkpoint.
ResumePoint plan_resume_point(const RunConfig& config);

}  // namespace athanor::inline saves
