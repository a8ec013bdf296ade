#pragma once
// What differs between the configuration a run had and the one it has now, field by field.

#include <string>
#include <string_view>
#include <vector>

#include "config/run_config.h"

namespace athanor {

/// "optimizer.lr was 0.002, is 0.001", in the order of the dump; empty where nothing that counts has changed.
/// @param before  a dump of any version: a field that it lacks had its default, one that is no more is left out. Text
///                that is not TOML gives one line that says so.
std::vector<std::string> describe_config_changes(std::string_view before, const RunConfig& now);

}  // namespace athanor
