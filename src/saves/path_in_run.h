#pragma once
// Finds where in a run's folder a path lies, however the path is written.

#include <filesystem>
#include <string>

namespace athanor::inline saves {

/// Returns the path with links resolved, whether it exists or not, without a slash at its end.
std::filesystem::path resolved(const std::filesystem::path& path);

/// Returns the place of a path inside the run's folder ("models/step-00001000"), "." for the folder itself, "" for any
/// other path. The folder, its checkpoints/ and models/, and a checkpoint in them may each be a link to another disk.
std::string path_in_run(const std::filesystem::path& root, const std::filesystem::path& path);

/// Returns true for "checkpoints/step-00001000" or "models/step-00001000". Other places in a run's folder, such as
/// models/abandoned-002/, belong to another branch of the run.
bool is_own_step(const std::string& place);

}  // namespace athanor::inline saves
