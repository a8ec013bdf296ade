#pragma once
// What may become of a folder that is there already when prepared data is to be written to its place.

#include <filesystem>
#include <vector>

namespace athanor {

/// A folder that is not empty may be replaced only with `overwrite`, and only if it holds prepared data, so that a
/// mistyped --out costs nobody their documents; nor may an input lie in it.
/// @throws ConfigError with the remedy.
void check_replaceable(const std::filesystem::path& out, bool overwrite,
                       const std::vector<std::filesystem::path>& inputs);

}  // namespace athanor
