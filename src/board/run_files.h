#pragma once
// Small files in the run's folder that processes of several nodes write and read at once: reports, requests, answers.

#include <filesystem>
#include <string>
#include <vector>

namespace athanor::board {

/// Replaces the file in one step, and does not sync it: a node that loses its power has lost the processes of which it
/// tells. Only one process at a time may write a path.
/// @return false, with errno, if that failed; the file is then as it was.
bool replace_unsynced(const std::filesystem::path& file, const std::string& text);

/// Returns the names in a folder, in any order; those that it has got if the file system fails, none if there is no
/// such folder. A network file system sends the list of the moment, though it may remember for a while that a file of
/// one name was not there.
std::vector<std::string> names_in(const std::filesystem::path& folder);

}  // namespace athanor::board
