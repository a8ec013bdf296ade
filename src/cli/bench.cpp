// athanor bench: the options of the benchmarks, one file bench_*.cpp for each. The folder bench/ contains the
// benchmarks.

#include "cli/bench.h"

#include <CLI/CLI.hpp>

#include "bench/arguments.h"
#include "cli/commands.h"
#include "cli/output_check.h"

namespace athanor::inline cli {

void add_bench_options(CLI::App& command, BenchArguments& arguments) {
  command.add_option("--rounds", arguments.rounds, "How often each is measured, alternately with its limit")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  command.add_option("--threads", arguments.num_threads, "0: OMP_NUM_THREADS, or one for each core it may run on")
      ->check(CLI::Range(0, 4096))
      ->capture_default_str();
  command.add_option("--json", arguments.json, "Write all figures to this file, too")->check(new_file());
  command.add_flag(
      "--paced", arguments.paced,
      "Print \"ready\", then run a round for each line of standard input and print \"done\": for bench/peers");
}

void add_bench_command(CLI::App& app) {
  auto* command = app.add_subcommand("bench", "Measure how fast parts of this program are on this machine");
  command->require_subcommand(1);
  add_bench_data_command(*command);
  add_bench_gemm_command(*command);
  add_bench_moe_command(*command);
  add_bench_step_command(*command);
  add_bench_optimizer_command(*command);
  add_bench_overhead_command(*command);
  add_bench_pipeline_command(*command);
  add_bench_comm_command(*command);
  add_bench_checkpoint_command(*command);
}

}  // namespace athanor::inline cli
