#pragma once
// A configuration as a list of names and values, whatever version wrote it.

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace athanor::inline config {

/// Returns each value with its name, such as "train.stages[1].lr", in the order of the text. Values are written as a
/// dump of the configuration writes them. @throws toml::parse_error, a std::runtime_error, for what is not TOML.
std::vector<std::pair<std::string, std::string>> toml_values(std::string_view toml_text);

}  // namespace athanor::inline config
