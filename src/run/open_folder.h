#pragma once
// How a start opens the folder of a run (record/run_folder.h).

#include <optional>
#include <string>
#include <vector>

#include "checkpoint/verified_load.h"
#include "config/run_config.h"
#include "saves/resume_point.h"

namespace athanor::inline run {

/// What a start of a run writes into the run's folder.
struct FolderOpening {
  const RunConfig& config;  ///< resolved
  const ResumePoint& begin;
  int64_t step;                             ///< the step after which the run continues
  std::filesystem::path tokenizer;          ///< the tokenizer file that the data was prepared with
  std::string dispatch_record;              ///< text for dispatch.json; empty: the file stays as it is
  std::string matmul_record = {};           ///< text for matmul.json; empty: the file stays as it is
  std::optional<PutAside> not_finite = {};  ///< a checkpoint of the run, to be put aside
};

struct OpenedFolder {
  std::vector<std::string> changes;    ///< differences from the configuration of the previous attempt, for people
  std::vector<std::string> abandoned;  ///< the new paths of what was moved aside
  std::string not_finite;              ///< the new path of the checkpoint that was put aside; empty: none was
};

/// Opens a run's folder for a start; only the first rank calls it, after every check that may refuse the run: nothing
/// in the folder changes earlier. It makes the folder and what a run needs in it, and cleans up what killed processes
/// left. It moves aside what a run that goes back abandons, and a checkpoint that is not finite (rotation.h). It keeps
/// the configuration of the previous attempt, and opens the log. If the process is killed on the way, the next start
/// plans the same beginning from the folder.
/// @throws IoError.
OpenedFolder open_run_folder(const FolderOpening& opening);

}  // namespace athanor::inline run
