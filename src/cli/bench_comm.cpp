// The options of athanor bench comm. bench/comm.cpp contains the benchmark.

#include <CLI/CLI.hpp>
#include <memory>

#include "bench/arguments.h"
#include "cli/bench.h"
#include "cli/core.h"
#include "cli/device_option.h"
#include "cli/exit_code.h"
#include "cli/type_option.h"

namespace athanor::inline cli {

void add_bench_comm_command(CLI::App& bench) {
  const auto arguments = std::make_shared<BenchCommArguments>();
  arguments->num_threads = 1;  // ranks share the cores
  auto* command = bench.add_subcommand("comm",
                                       "Collectives compared with a memory copy, all-to-all with all-gather; start it "
                                       "by mpirun (mpirun -n 4 athanor bench comm) or torchrun");
  const auto number = [&](const char* name, int64_t& value, int64_t most, const char* help) {
    command->add_option(name, value, help)->check(CLI::Range(int64_t{1}, most))->capture_default_str();
  };
  number("--least", arguments->least_bytes, int64_t{1} << 33, "Bytes of the smallest tensor");
  number("--most", arguments->most_bytes, int64_t{1} << 33, "Bytes of the largest; each is four times the one before");
  add_type_option(*command, arguments->dtype, "Type of the elements")->capture_default_str();
  command
      ->add_option(
          "--inner", arguments->inner,
          "Also measure the two-level forms, with this many neighbouring ranks inside; it must divide the ranks")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  number("--hidden", arguments->hidden, int64_t{1} << 20, "Width of a token, for all-to-all against all-gather");
  number("--topk", arguments->topk, 1024, "Experts of a token");
  command->add_option("--tokens", arguments->tokens, "Tokens of a rank")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 24))
      ->delimiter(',')
      ->capture_default_str();
  add_device_option(*command, arguments->device, "What the tensors are on, one device for each rank");
  add_bench_options(*command, *arguments);
  command->callback([arguments] {
    if (const int code = call_core("bench_comm", arguments.get())) throw ExitCode{code};
  });
}

}  // namespace athanor::inline cli
