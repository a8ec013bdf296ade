// The options of athanor bench overhead. bench/overhead.cpp contains the benchmark.

#include <CLI/CLI.hpp>
#include <memory>

#include "base/error.h"
#include "bench/arguments.h"
#include "cli/bench.h"
#include "cli/core.h"
#include "cli/exit_code.h"
#include "cli/type_option.h"

namespace athanor::inline cli {

void add_bench_overhead_command(CLI::App& bench) {
  const auto arguments = std::make_shared<BenchOverheadArguments>();
  auto* command = bench.add_subcommand(
      "overhead",
      "Forward and backward of one layer that is so small that only the program's overhead remains; with a "
      "configuration, the share of a rank's processor time in a step that a layout's schedule and bookkeeping take");
  command->add_option("config", arguments->config_file, "A run's configuration; its data are not read");
  command->add_option("--set", arguments->overrides, "table.key=value: overrides a field; may be repeated")
      ->allow_extra_args(false);
  command->add_option("--ranks", arguments->ranks, "Ranks of the configuration's layout")
      ->check(CLI::Range(1, 1 << 16))
      ->capture_default_str();
  command->add_option("--hidden", arguments->hidden, "Width of a token, a multiple of 16")
      ->check(CLI::Range(int64_t{16}, int64_t{1} << 16))
      ->capture_default_str();
  command->add_option("--tokens", arguments->tokens, "Tokens")
      ->check(CLI::Range(int64_t{2}, int64_t{1} << 20))
      ->capture_default_str();
  add_type_option(*command, arguments->dtype, "Type of forward and backward; default: both");
  add_bench_options(*command, *arguments);
  command->callback([arguments] {
    ATHANOR_CHECK(arguments->overrides.empty() || !arguments->config_file.empty(),
                  "--set {}: changes a field of a configuration; name one, or leave --set out",
                  arguments->overrides.front());
    if (const int code = call_core("bench_overhead", arguments.get())) throw ExitCode{code};
  });
}

}  // namespace athanor::inline cli
