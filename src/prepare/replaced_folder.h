#pragma once
// Decides if prepared data may replace an existing folder.

#include <filesystem>
#include <vector>

namespace athanor {

/// A folder that is not empty may be replaced only with `overwrite`, and only if it holds prepared data, so that a
/// mistyped --out does not destroy documents. No input may be in it either.
/// @throws ConfigError with the remedy.
void check_replaceable(const std::filesystem::path& out, bool overwrite,
                       const std::vector<std::filesystem::path>& inputs);

}  // namespace athanor
