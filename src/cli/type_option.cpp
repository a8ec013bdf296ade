#include "cli/type_option.h"

#include <CLI/CLI.hpp>

#include "base/error.h"
#include "base/number_types.h"

namespace athanor::inline cli {

CLI::Option* add_type_option(CLI::App& command, std::string& into, const std::string& help) {
  const auto canonical = [](std::string& name) {
    try {
      name = name_of(number_type(name));
      return std::string();
    } catch (const ConfigError&) {
      return "expected bfloat16, bf16, float32 or fp32, got " + name;
    }
  };
  return command.add_option("--dtype", into, help + " (bfloat16, bf16, float32 or fp32)")
      ->transform(CLI::Validator(canonical, ""));
}

}  // namespace athanor::inline cli
