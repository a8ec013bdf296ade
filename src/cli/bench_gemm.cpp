// The options of athanor bench gemm. bench/gemm.cpp contains the benchmark.

#include <CLI/CLI.hpp>
#include <memory>

#include "bench/arguments.h"
#include "cli/bench.h"
#include "cli/core.h"
#include "cli/device_option.h"
#include "cli/exit_code.h"
#include "cli/type_option.h"

namespace athanor::inline cli {

void add_bench_gemm_command(CLI::App& bench) {
  const auto arguments = std::make_shared<BenchGemmArguments>();
  auto* command = bench.add_subcommand(
      "gemm", "Matrix products, one for each expert, as a share of the GEMM peak; without a shape, five of them");
  const auto shape = [&](const char* name, int64_t& value, const char* help) {
    return command->add_option(name, value, help)
        ->check(CLI::Range(int64_t{1}, int64_t{1} << 24))
        ->capture_default_str();
  };
  const std::vector<CLI::Option*> options = {
      shape("--experts", arguments->experts, "Experts"), shape("--rows", arguments->rows, "Rows of each expert"),
      shape("--k", arguments->k, "Inputs"), shape("--n", arguments->n, "Outputs")};
  add_type_option(*command, arguments->dtype, "Type of the operands; default: both");
  add_device_option(*command, arguments->device, "What it computes on");
  add_bench_options(*command, *arguments);
  command->callback([arguments, options] {
    for (const auto* option : options) arguments->any_shape |= option->count() > 0;
    if (const int code = call_core("bench_gemm", arguments.get())) throw ExitCode{code};
  });
}

}  // namespace athanor::inline cli
