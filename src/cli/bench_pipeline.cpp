// The options of athanor bench pipeline. bench/pipeline.cpp contains the benchmark.

#include <CLI/CLI.hpp>
#include <memory>

#include "bench/arguments.h"
#include "cli/bench.h"
#include "cli/core.h"
#include "cli/exit_code.h"
#include "cli/output_check.h"

namespace athanor::inline cli {

void add_bench_pipeline_command(CLI::App& bench) {
  const auto arguments = std::make_shared<BenchPipelineArguments>();
  arguments->num_threads = 1;  // stages sleep
  auto* command = bench.add_subcommand(
      "pipeline",
      "Pipeline schedules by formula and in a run: ranks are threads of this process whose stages sleep instead of "
      "computing, so that the result shows schedule and messages and does not depend on cores");
  command->add_option("--schedule", arguments->schedule, "gpipe, 1f1b or interleaved_1f1b; default: all");
  const auto number = [&](const char* name, int& value, int most, const char* help) {
    command->add_option(name, value, help)->check(CLI::Range(1, most))->capture_default_str();
  };
  number("--ranks", arguments->ranks, 64, "Ranks of the pipeline");
  number("--microbatches", arguments->microbatches, 4096, "Microbatches of a step");
  number("--virtual-stages", arguments->virtual_stages, 64, "Stages of a rank, for interleaved_1f1b");
  command
      ->add_option("--forward-ms", arguments->forward_ms,
                   "Forward time of a rank's stages together; a backward takes twice that")
      ->check(CLI::Range(0.0, 10000.0))
      ->capture_default_str();
  command->add_option("--activation-kib", arguments->activation_kib, "KiB that are sent for each microbatch")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20))
      ->capture_default_str();
  command->add_flag("--actions", arguments->actions, "Print each rank's actions");
  command
      ->add_option("--pictures", arguments->pictures,
                   "Write SCHEDULE.svg (by formula) and SCHEDULE-measured.svg into this folder")
      ->check(new_folder());
  add_bench_options(*command, *arguments);
  command->callback([arguments] {
    if (const int code = call_core("bench_pipeline", arguments.get())) throw ExitCode{code};
  });
}

}  // namespace athanor::inline cli
