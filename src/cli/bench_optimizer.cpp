// The options of athanor bench optimizer. bench/optimizer.cpp contains the benchmark.

#include <CLI/CLI.hpp>
#include <memory>

#include "bench/arguments.h"
#include "cli/bench.h"
#include "cli/core.h"
#include "cli/device_option.h"
#include "cli/exit_code.h"
#include "cli/type_option.h"
#include "config/optimizer_config.h"

namespace athanor::inline cli {

void add_bench_optimizer_command(CLI::App& bench) {
  const auto arguments = std::make_shared<BenchOptimizerArguments>();
  auto* command = bench.add_subcommand(
      "optimizer",
      "Updates and the gradient norm, as a share of the memory bandwidth; Muon's products, of the GEMM peak");
  command->add_option("--name", arguments->name, "Which optimizer; those other than adamw are timed in turns with it")
      ->check(CLI::IsMember(optimizer_names()))
      ->capture_default_str();
  command->add_option("--parameters", arguments->parameters, "Number of parameters; more than fit into the caches")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 34))
      ->capture_default_str();
  add_type_option(*command, arguments->dtype, "Type of the weights that forward reads; default: both");
  add_device_option(*command, arguments->device, "What it computes on");
  add_bench_options(*command, *arguments);
  command->callback([arguments] {
    if (const int code = call_core("bench_optimizer", arguments.get())) throw ExitCode{code};
  });
}

}  // namespace athanor::inline cli
