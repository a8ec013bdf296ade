#pragma once
// Patterns of paths as in a shell that knows `**`.

#include <filesystem>
#include <string>
#include <vector>

namespace athanor::inline documents {

/// True if `pattern` contains one of `*`, `?`, `[`.
bool has_wildcard(const std::string& pattern);

/// Returns the existing paths that match, unsorted, files and folders. Within a name `*`, `?` and `[...]` ([!...]
/// negated) match characters. `**` as a whole name matches any number of folders, including none, without following
/// links; as the last name it matches every file below. Names that begin with a dot match only a pattern that begins
/// with a dot too.
std::vector<std::filesystem::path> match_paths(const std::string& pattern);

}  // namespace athanor::inline documents
