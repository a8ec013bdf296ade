#pragma once
// Patterns over paths, as a shell with `**` understands them.

#include <filesystem>
#include <string>
#include <vector>

namespace athanor {

/// Does `pattern` hold one of `*`, `?`, `[`?
bool has_wildcard(const std::string& pattern);

/// Existing paths that match, unsorted. Within a name `*`, `?` and `[...]` ([!...] negated) stand for characters; `**`
/// as a whole name stands for any number of folders, none included. Names that start with a dot match only a pattern
/// that does so too.
std::vector<std::filesystem::path> match_paths(const std::string& pattern);

}  // namespace athanor
