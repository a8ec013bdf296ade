#pragma once
// Compares the configuration that a run had with the one that it has now, field by field.

#include <string>
#include <string_view>
#include <vector>

#include "config/run_config.h"

namespace athanor::inline config {

/// Returns a line for each field that differs, e.g. "optimizer.lr was 0.002, is 0.001", in the order of the dump
/// (fields of list items come last). Empty if no field has changed.
/// @param before  a dump of any version. A field that it lacks counts as its default, and a field that no longer exists
///                is left out; fields of list items are reported as "absent" on the side that lacks them. If the text
///                is not TOML, the result is one line that reports the parse error.
std::vector<std::string> describe_config_changes(std::string_view before, const RunConfig& now);

/// A field with its values in two texts, as TOML.
struct ConfigTextDifference {
  std::string name, a, b;
};

/// Compares two dumps of any version, field by field, in the order of the names. A field that one lacks counts as its
/// default there, or as "absent" if it has none. If a text is not TOML, the result is one row that shows this under the
/// name "text"; no row if both are the same text.
std::vector<ConfigTextDifference> config_text_differences(std::string_view a, std::string_view b);

}  // namespace athanor::inline config
