#pragma once
// Where in a run's folder a path lies, however it is written.

#include <filesystem>
#include <string>

namespace athanor {

/// As the system sees it, links resolved, whether it exists or not; without a slash at its end.
std::filesystem::path resolved(const std::filesystem::path& path);

/// "models/step-00001000" of a path inside the run's folder, "." of the folder itself, "" of any other. The folder, its
/// checkpoints/ and models/, and a checkpoint in them may each be a link to another disk.
std::string place_in_run(const std::filesystem::path& root, const std::filesystem::path& path);

/// Is it "checkpoints/step-00001000" or "models/step-00001000"? What else lies in a run's folder, as in
/// models/abandoned-002/, is of another course of it.
bool is_own_step(const std::string& place);

}  // namespace athanor
