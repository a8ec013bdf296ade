// athanor generate RUN_OR_HF_DIR --prompt "..." | --prompts FILE

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "base/error.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/core.h"
#include "cli/options.h"
#include "documents/standard_input.h"

namespace athanor::inline cli {

namespace {

// What is wrong without a look at any file.
void check_arguments(const GenerateArguments& given) {
  const auto count = std::ranges::count(given.prompts, kStandardInput);
  ATHANOR_CHECK(count <= 1, "--prompt - (standard input) is given {} times, and can be read only once", count);
  ATHANOR_CHECK(!given.prompts.empty() || !given.prompts_file.empty(),
                "generate: there is no prompt; give --prompt TEXT, or --prompts FILE with one on each line");
  ATHANOR_CHECK(given.prompts.empty() || given.prompts_file.empty(),
                "--prompt and --prompts cannot be combined; leave one out");
  for (const std::string& stop : given.stops) {
    ATHANOR_CHECK(!stop.empty(), "--stop is empty, and every text would end before it began; leave it out");
    ATHANOR_CHECK(!find_invalid_utf8(stop), "--stop {} is not UTF-8, and no text has it", printable(stop));
  }
}

}  // namespace

void add_generate_command(CLI::App& app) {
  const auto arguments = std::make_shared<GenerateArguments>();
  auto* command = app.add_subcommand("generate", "Continue a text");
  command
      ->add_option("model", arguments->model,
                   "A run folder, one of its checkpoints or models, or a folder of transformers")
      ->required();
  command
      ->add_option("--prompt", arguments->prompts,
                   "The text to continue; may be repeated. -: all of standard input, without a newline at its end")
      ->allow_extra_args(false);
  command->add_option(
      "--prompts", arguments->prompts_file,
      "A file of prompts: one a line, or .jsonl with the field prompt. -: lines of standard input, each "
      "answered as it comes");
  command
      ->add_option("--stop", arguments->stops,
                   "The text ends before this string, and does not show it; may be repeated")
      ->allow_extra_args(false);
  command
      ->add_option("--batch-size", arguments->batch_size,
                   "Texts that are continued at the same time, on each data rank; memory grows with it")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 16))
      ->capture_default_str();
  command
      ->add_option("--max-new-tokens", arguments->max_new_tokens,
                   "The most tokens to add; a token that ends texts (eos_token_id of generation_config.json or "
                   "config.json) ends the text earlier")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 30))
      ->capture_default_str();
  command
      ->add_option("--temperature", arguments->temperature,
                   "0 takes the likeliest token each time; 1 samples with the model's probabilities")
      ->check(number_between(0, 1000))
      ->capture_default_str();
  command
      ->add_option("--top-p", arguments->top_p,
                   "Sample from the likeliest tokens that together have this share of the probability")
      ->check(number_between(0, 1))
      ->capture_default_str();
  command->add_option("--seed", arguments->seed, "Seed of the sampling; the same seed gives the same text")
      ->transform(without_sign())
      ->capture_default_str();
  add_type_option(*command, arguments->dtype, "Type of the computation")->capture_default_str();
  add_device_option(*command, arguments->device, "What it computes on");
  command
      ->add_option("--set", arguments->overrides,
                   "parallelism.key=value: how ranks share the model; may be repeated. By default each rank of a job "
                   "has the whole model, and they share the prompts")
      ->allow_extra_args(false);
  command->add_flag(
      "!--no-special-tokens", arguments->special_tokens,
      "Put no tokens around the prompt. By default those of the training data, or those that the tokenizer "
      "of a folder from elsewhere asks for (BOS)");
  command->add_flag("--json", arguments->json,
                    "A JSON object on a line for each prompt: prompt, token ids, text, and whether an end-of-document "
                    "token or which stop string ended it");
  command->footer(
      "The answers are in the order of the prompts; the first one is shown as it comes. See docs/generation.md.\n"
      "Example: mpirun -n 4 athanor generate runs/olmoe-tiny --prompts questions.txt --stop $'\\n' --temperature 0 \\\n"
      "           --set parallelism.tensor_parallel_degree=2");
  command->callback([arguments] {
    check_arguments(*arguments);
    call_core("generate", arguments.get());
  });
}

}  // namespace athanor::inline cli
