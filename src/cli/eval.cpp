// athanor eval RUN_OR_HF_DIR... --tasks LIST --data DIR [--limit N] [--fewshot K] [--out FILE]

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "base/error.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/core.h"
#include "cli/options.h"
#include "cli/output_check.h"
#include "tasks/task_list.h"

namespace athanor::inline cli {
namespace {

std::vector<std::filesystem::path> paths_of(const std::vector<std::string>& names) {
  return {names.begin(), names.end()};
}

void check_progression_options(const EvalArguments& given) {
  ATHANOR_CHECK(given.every || given.figure.empty(),
                "eval: --figure draws the checkpoints of runs; add --every, or draw results that are there with "
                "`athanor plot --evals RUN`");
  ATHANOR_CHECK(given.every || given.metric.empty(), "eval: --metric is for the progression of --every; add --every");
  if (!given.figure.empty()) check_picture_file("--figure", given.figure);
}

void run_eval(const EvalArguments& given, bool list) {
  if (list) {
    fmt::print("{}", tasks::format_task_list(tasks::list_tasks(paths_of(given.include_paths))));
    return;
  }
  ATHANOR_CHECK(!given.models.empty(), "eval: name a run folder, a checkpoint or a folder of transformers");
  const auto is_named = [](const std::string& task) { return !task.empty(); };
  ATHANOR_CHECK(std::ranges::any_of(given.tasks, is_named),
                "eval: --tasks is missing; `athanor eval --list` shows the tasks that there are");
  ATHANOR_CHECK(!given.data.empty(), "eval: --data is missing: the folder with the tasks' rows");
  ATHANOR_CHECK(given.out != "-", "--out -: name a file; --json prints the results on standard output");
  const auto file = file_above(given.out);
  ATHANOR_CHECK(file.empty(), "--out {}: {} is a file; name a file or a folder that can be made", given.out,
                file.string());
  check_progression_options(given);
  call_core("eval", &given);
}

void add_task_options(CLI::App& command, EvalArguments& arguments) {
  command
      .add_option("--tasks", arguments.tasks,
                  "Tasks, groups or tags, separated by commas, or paths of task files (.yaml); may be repeated")
      ->delimiter(',')
      ->allow_extra_args(false);
  command.add_option("--data", arguments.data, "The folder of the data sets' own rows: arc_easy.jsonl.gz, …");
  command
      .add_option("--include-path", arguments.include_paths,
                  "A folder of task files, which come before those of the program; may be repeated")
      ->allow_extra_args(false);
  command
      .add_option("--limit", arguments.limit,
                  "Only the first documents of each task: that many, or below 1 that share of them; 0: all")
      ->check(number_between(0, 1e12))
      ->capture_default_str();
  command.add_option("--fewshot", arguments.num_fewshot, "Examples before each question, instead of the task's number")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 20));
  command.add_option("--fewshot-seed", arguments.fewshot_seed, "Seed of the choice of examples, as in lm_eval")
      ->transform(without_sign())
      ->capture_default_str();
  command.add_flag("--no-truncation", arguments.no_truncation,
                   "Refuse a request that is too long for the model, instead of dropping the beginning of its context");
}

void add_output_options(CLI::App& command, EvalArguments& arguments) {
  command.add_option(
      "--out", arguments.out,
      "The file for the results (JSON in the shape of lm_eval's), or for several models a folder; by default, of a run "
      "its folder evals/. An evaluation that was interrupted continues there");
  command.add_flag("--samples", arguments.samples, "Also write each document with its answers, next to the results");
  command
      .add_option("--compare", arguments.compare,
                  "A file of results, of athanor or of lm_eval, that the table also shows; may be repeated")
      ->allow_extra_args(false);
  command
      .add_option(
          "--figure", arguments.figure,
          "The file for a picture of the progression (SVG), with --every: the scores of each task over the training "
          "tokens, a line for each run")
      ->check(new_file());
  command.add_option(
      "--metric", arguments.metric,
      "The metric that the progression of --every shows, such as acc; by default acc_norm where a task has "
      "it, or else acc, or bits_per_byte");
  command.add_flag("--json", arguments.json, "Print the results as JSON, a line for each model, in place of the table");
}

void add_compute_options(CLI::App& command, EvalArguments& arguments) {
  add_type_option(command, arguments.dtype, "Type of the computation")->capture_default_str();
  add_device_option(command, arguments.device, "What it computes on");
  command
      .add_option("--batch-tokens", arguments.batch_tokens,
                  "Tokens that a data rank computes at once; texts with the same beginning share its tokens")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 24))
      ->capture_default_str();
  command
      .add_option("--window-tokens", arguments.window_tokens,
                  "Tokens of the requests that are read and packed at once: memory grows with it, and with more ranks "
                  "it must be larger to give each of them a batch")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40))
      ->capture_default_str();
  command
      .add_option("--set", arguments.overrides,
                  "parallelism.KEY=VALUE: how the ranks of a job share the model; by default each has the whole model, "
                  "and they share the documents; may be repeated")
      ->allow_extra_args(false);
}

}  // namespace

void add_eval_command(CLI::App& app) {
  const auto arguments = std::make_shared<EvalArguments>();
  const auto list = std::make_shared<bool>(false);
  auto* command = app.add_subcommand(
      "eval", "Score models on tasks (arc_easy, hellaswag, mmlu, …) and texts, with the scores that lm_eval gives");
  command->add_option("models", arguments->models,
                      "Run folders, checkpoints or models of runs, or folders of transformers");
  command->add_flag("--list", *list, "Show the tasks that there are, with the scores of guessing and of known models");
  command->add_flag("--every", arguments->every,
                    "Every checkpoint and model of the runs, from the oldest on; the table has a row for each");
  add_task_options(*command, *arguments);
  add_output_options(*command, *arguments);
  add_compute_options(*command, *arguments);
  command->callback([arguments, list] { run_eval(*arguments, *list); });
}

}  // namespace athanor::inline cli
