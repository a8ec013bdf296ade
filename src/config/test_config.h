#pragma once
// For this room's tests: what a configuration is refused with.

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "config/toml_reader.h"

namespace athanor {

/// The message that the configuration is refused with; "" if it is not.
inline std::string error_of(std::string_view toml, const std::vector<std::string>& overrides = {}) {
  try {
    parse_run_config(toml, "run.toml", overrides);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

}  // namespace athanor
