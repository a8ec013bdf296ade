#include "cli/type_option.h"

#include <CLI/CLI.hpp>

#include "base/number_types.h"

namespace athanor::inline cli {

CLI::Option* add_type_option(CLI::App& command, std::string& into, const std::string& help) {
  const auto canonical = [](std::string& name) {
    const std::string asked = name;
    name = canonical_type_name(asked);
    return name == "bfloat16" || name == "float32" ? std::string()
                                                   : "expected bfloat16, bf16, float32 or fp32, got " + asked;
  };
  return command.add_option("--dtype", into, help + " (bfloat16, bf16, float32 or fp32)")
      ->transform(CLI::Validator(canonical, ""));
}

}  // namespace athanor::inline cli
