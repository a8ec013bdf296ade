#pragma once
// Helper for the tests in src/config: the message with which a configuration is refused.

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "config/toml_reader.h"

namespace athanor::inline config {

/// Returns the message with which the configuration is refused, or "" if it is accepted.
inline std::string error_of(std::string_view toml, const std::vector<std::string>& overrides = {}) {
  try {
    parse_run_config(toml, "run.toml", overrides);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

}  // namespace athanor::inline config
