// The options of athanor bench step. bench/step.cpp contains the benchmark.

#include <CLI/CLI.hpp>
#include <memory>

#include "bench/arguments.h"
#include "cli/bench.h"
#include "cli/core.h"
#include "cli/exit_code.h"

namespace athanor::inline cli {

void add_bench_step_command(CLI::App& bench) {
  const auto arguments = std::make_shared<BenchStepArguments>();
  auto* command = bench.add_subcommand(
      "step", "A whole training step on random tokens and each of its parts, as shares of the machine's limits");
  command->add_option("config", arguments->config_file, "The run's configuration; its data are not read")->required();
  command->add_option("--set", arguments->overrides, "table.key=value: overrides a field; may be repeated")
      ->allow_extra_args(false);
  command->add_flag("!--no-recompute", arguments->recompute,
                    "Do not measure what recomputing activations costs and saves");
  add_bench_options(*command, *arguments);
  command->footer("Example: athanor bench step recipes/olmoe-tiny.toml --set data.seq_len=1024 --json step.json");
  command->callback([arguments] {
    if (const int code = call_core("bench_step", arguments.get())) throw ExitCode{code};
  });
}

}  // namespace athanor::inline cli
