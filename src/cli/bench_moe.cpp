// The options of athanor bench moe. bench/moe.cpp contains the benchmark.

#include <CLI/CLI.hpp>
#include <memory>

#include "bench/arguments.h"
#include "cli/bench.h"
#include "cli/core.h"
#include "cli/device_option.h"
#include "cli/exit_code.h"
#include "cli/type_option.h"

namespace athanor::inline cli {

void add_bench_moe_command(CLI::App& bench) {
  const auto arguments = std::make_shared<BenchMoeArguments>();
  auto* command = bench.add_subcommand(
      "moe", "The sparse block, forward and backward, as a share of the GEMM peak; without a shape, five of them");
  const auto at_least_1 = CLI::Range(int64_t{1}, int64_t{1} << 24);
  const auto shape = [&](const char* name, int64_t& value, const char* help) {
    return command->add_option(name, value, help)->check(at_least_1)->capture_default_str();
  };
  const std::vector<CLI::Option*> options = {
      shape("--tokens", arguments->tokens, "Tokens"), shape("--hidden", arguments->hidden, "Width of a token"),
      shape("--ffn", arguments->ffn, "Width of an expert"), shape("--experts", arguments->experts, "Experts"),
      shape("--topk", arguments->topk, "Experts of each token")};
  add_type_option(*command, arguments->dtype, "Type of tokens and weights; default: both");
  command->add_flag("--uniform", arguments->uniform, "The same number of tokens for each expert");
  add_device_option(*command, arguments->device, "What it computes on");
  add_bench_options(*command, *arguments);
  command->callback([arguments, options] {
    for (const auto* option : options) arguments->any_shape |= option->count() > 0;
    if (const int code = call_core("bench_moe", arguments.get())) throw ExitCode{code};
  });
}

}  // namespace athanor::inline cli
