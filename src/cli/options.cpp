#include "cli/options.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/number_types.h"
#include "config/duration.h"
#include "config/run_config.h"
#include "documents/standard_input.h"

namespace athanor::inline cli {

CLI::Option* add_device_option(CLI::App& command, std::string& into, const std::string& help) {
  const auto known = [](std::string& name) {
    return find_value<DeviceKind>(name) ? std::string() : "expected auto, cpu, cuda or xpu, got " + name;
  };
  return command.add_option("--device", into, help + " (auto, cpu, cuda or xpu, as train.device)")
      ->check(CLI::Validator(known, ""))
      ->capture_default_str();
}

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

CLI::Option* add_format_option(CLI::App& command, DocumentOptions& options) {
  return command
      .add_option_function<std::string>(
          "--format", [&options](const std::string& ending) { options.standard_input = standard_input_format(ending); },
          "What standard input (-) holds: jsonl, json or txt, or compressed: jsonl.gz, jsonl.zst")
      ->type_name("jsonl|json|txt");
}

CLI::Option* add_on_error_option(CLI::App& command, OnError& on_error) {
  return command
      .add_option_function<std::string>(
          "--on-error",
          [&on_error](const std::string& choice) { on_error = choice == "skip" ? OnError::kSkip : OnError::kFail; },
          "What happens at a bad document: fail ends and reports its file and line, skip counts it and continues")
      ->check(CLI::IsMember({"fail", "skip"}).description(""))
      ->type_name("fail|skip")
      ->default_str("fail");
}

CLI::Validator duration_as_seconds() {
  return CLI::Validator(
      [](std::string& text) -> std::string {
        if (text.find_first_not_of("-0123456789") == std::string::npos) return "";  // the option's range is checked
        const auto seconds = parse_duration(text);
        if (!seconds) return fmt::format("expected seconds, or a duration such as 90s, 15m or 2h, got {}", text);
        text = std::to_string(std::llround(*seconds));
        return "";
      },
      "");
}

CLI::Validator number_between(double low, double high) {
  const auto check = [low, high](const std::string& text) -> std::string {
    double value = 0;
    if (CLI::detail::lexical_cast(text, value) && value >= low && value <= high) return "";
    return fmt::format("expected a number from {:g} to {:g}, got {}", low, high, text);
  };
  return CLI::Validator(check, fmt::format("FLOAT in [{:g} - {:g}]", low, high));
}

CLI::Validator without_sign() {
  return CLI::Validator(
      [](std::string& text) {
        constexpr size_t kMostDigits = 19;  // 10^19 - 1 is below 2^64
        const bool is_number = !text.empty() && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
        if (text.starts_with('-')) return fmt::format("expected a number without a sign, got {}", text);
        if (is_number && text.size() > kMostDigits) return fmt::format("{} is too large", text);
        return std::string();
      },
      "");
}

CLI::Validator fits_in_64_bits() {
  return CLI::Validator(
      [](std::string& text) {
        constexpr size_t kMostDigits = 18;  // 10^18 - 1 is below 2^63
        const size_t sign = text.starts_with('-') || text.starts_with('+') ? 1 : 0;
        const bool is_number = text.size() > sign && text.find_first_not_of("0123456789", sign) == std::string::npos;
        return is_number && text.size() - sign > kMostDigits ? fmt::format("{} is too large", text) : std::string();
      },
      "");
}

}  // namespace athanor::inline cli
