#pragma once
// Decides if prepared data may replace an existing folder.

#include <filesystem>
#include <vector>

namespace athanor::inline preparation {

/// Checks that `out` may be replaced. A folder that is absent or empty always may. Any other may only with `overwrite`,
/// and only if it holds prepared data, so that a mistyped --out does not destroy documents, and no input is in it.
/// @throws ConfigError with the remedy if it may not.
void check_replaceable(const std::filesystem::path& out, bool overwrite,
                       const std::vector<std::filesystem::path>& inputs);

}  // namespace athanor::inline preparation
