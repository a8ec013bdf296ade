// The options of athanor bench checkpoint. bench/checkpoint.cpp contains the benchmark.

#include <CLI/CLI.hpp>
#include <memory>

#include "bench/arguments.h"
#include "cli/bench.h"
#include "cli/core.h"
#include "cli/exit_code.h"
#include "cli/output_check.h"

namespace athanor::inline cli {

void add_bench_checkpoint_command(CLI::App& bench) {
  const auto arguments = std::make_shared<BenchCheckpointArguments>();
  auto* command = bench.add_subcommand("checkpoint",
                                       "Saving and loading full checkpoints while steps run, compared with plain "
                                       "writes and reads of the same disk; alone, or started by mpirun or torchrun");
  command->add_option("config", arguments->config_file, "The run's configuration; its data are not read")->required();
  command->add_option("--set", arguments->overrides, "table.key=value: overrides a field; may be repeated")
      ->allow_extra_args(false);
  command->add_option("--saves", arguments->saves, "How many checkpoints are saved while steps run")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  command->add_option("--folder", arguments->folder,
                      "Folder on the disk to measure, which takes three times the checkpoint for as long as this runs; "
                      "default: the one that train.run_dir is in");
  command->add_option("--json", arguments->json, "Write all figures to this file, too")->check(new_file());
  command->footer(
      "Example: mpirun -n 4 athanor bench checkpoint recipes/olmoe-tiny.toml --set data.seq_len=512 --saves 10");
  command->callback([arguments] {
    if (const int code = call_core("bench_checkpoint", arguments.get())) throw ExitCode{code};
  });
}

}  // namespace athanor::inline cli
