// athanor bench: its subcommands with their options. Each benchmark is a file in bench/, which verifies first and then
// measures.

#include <CLI/CLI.hpp>
#include <memory>

#include "base/error.h"
#include "bench/arguments.h"
#include "bench/data/data.h"
#include "cli/commands.h"
#include "cli/core.h"
#include "cli/options.h"
#include "cli/output_check.h"
#include "config/optimizer_config.h"
#include "tokenizer/tokenizer_files.h"

namespace athanor::inline cli {
namespace {

// Adds --rounds, --threads, --json and --paced, which every benchmark except `data` and `checkpoint` has. `arguments`
// must outlive `command`.
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

void add_bench_data_command(CLI::App& bench) {
  const auto arguments = std::make_shared<BenchDataArguments>();
  auto* command = bench.add_subcommand("data", "Reading, tokenizing and preparing documents");
  command->add_option("--tokenizer", arguments->tokenizer, kTokenizerHelp)->required();
  command->add_option("--rounds", arguments->rounds, "How often each is measured")->capture_default_str();
  command->add_option("--threads", arguments->num_threads, "0: one for each core")->capture_default_str();
  command->add_option("--max-bytes", arguments->max_bytes, "How much text to hold in memory for the parts")
      ->transform(without_sign())
      ->capture_default_str();
  command->add_option("--text-field", arguments->text_field, "The field of JSON rows that contains the text")
      ->capture_default_str();
  command->add_flag("--encode-only", arguments->encode_only, "Only the encoding by one thread, for bench/peers");
  command->add_option("--json", arguments->json, "Write all numbers to this file, too")->check(new_file());
  command->add_option("INPUT", arguments->inputs, "Files, folders or patterns, as for prepare")->required();
  command->callback([arguments] { bench_data(*arguments); });
}

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
    call_core("bench_gemm", arguments.get());
  });
}

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
    call_core("bench_moe", arguments.get());
  });
}

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
  command->callback([arguments] { call_core("bench_step", arguments.get()); });
}

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
  command->callback([arguments] { call_core("bench_optimizer", arguments.get()); });
}

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
    call_core("bench_overhead", arguments.get());
  });
}

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
  command->callback([arguments] { call_core("bench_pipeline", arguments.get()); });
}

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
  command->callback([arguments] { call_core("bench_comm", arguments.get()); });
}

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
  command->callback([arguments] { call_core("bench_checkpoint", arguments.get()); });
}

}  // namespace

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
