// Reads any bytes as TOML: the result is a configuration or a ConfigError, nothing else, and what was read survives a
// dump.

#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "config/dump.h"
#include "config/toml_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const auto config = athanor::parse_run_config({reinterpret_cast<const char*>(data), size}, "fuzz");
    const auto dumped = athanor::dump_run_config(config);
    if (athanor::dump_run_config(athanor::parse_run_config(dumped, "dump")) != dumped) std::abort();
  } catch (const athanor::ConfigError&) {
  }
  return 0;
}
