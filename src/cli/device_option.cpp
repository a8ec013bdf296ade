#include "cli/device_option.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <string_view>

namespace athanor::inline cli {

CLI::Option* add_device_option(CLI::App& command, std::string& into, const std::string& help) {
  const auto known = [](std::string& name) {
    constexpr std::array<std::string_view, 4> kNames = {"auto", "cpu", "cuda", "xpu"};
    return std::ranges::count(kNames, name) ? std::string() : "expected auto, cpu, cuda or xpu, got " + name;
  };
  return command.add_option("--device", into, help + " (auto, cpu, cuda or xpu, as train.device)")
      ->check(CLI::Validator(known, ""))
      ->capture_default_str();
}

}  // namespace athanor::inline cli
