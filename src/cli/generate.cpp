// athanor generate RUN_OR_HF_DIR --prompt "..."

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <iterator>
#include <memory>

#include "base/error.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/core.h"
#include "cli/device_option.h"
#include "cli/exit_code.h"
#include "cli/number_check.h"
#include "cli/type_option.h"
#include "cli/whole_number.h"
#include "documents/standard_input.h"

namespace athanor {

namespace {

// A newline at the end is that of the shell's tools, and rarely meant: the model would continue after it.
std::string read_standard_input() {
  announce_terminal("the prompt");
  std::string text{std::istreambuf_iterator<char>(std::cin), {}};
  if (text.ends_with('\n')) text.pop_back();
  if (text.ends_with('\r')) text.pop_back();
  ATHANOR_CHECK_DATA(
      !text.empty(),
      "--prompt -: standard input is empty; to begin from the end-of-document token, give --prompt \"\"");
  const auto invalid = find_invalid_utf8(text);
  ATHANOR_CHECK_DATA(!invalid, "--prompt -: standard input has invalid UTF-8 at byte {}; convert it to UTF-8",
                     invalid.value_or(0));
  return text;
}

void read_standard_prompt(std::vector<std::string>& prompts) {
  const auto count = std::ranges::count(prompts, kStandardInput);
  ATHANOR_CHECK(count <= 1, "--prompt - (standard input) is given {} times, and can be read only once", count);
  if (count == 1) *std::ranges::find(prompts, kStandardInput) = read_standard_input();
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
      ->required()
      ->allow_extra_args(false);
  command
      ->add_option("--max-new-tokens", arguments->max_new_tokens,
                   "The most tokens to add; an end-of-document token ends the text earlier")
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
  command->add_flag("--json", arguments->json, "A JSON object for each prompt: prompt, token ids, text");
  command->callback([arguments] {
    read_standard_prompt(arguments->prompts);
    if (const int code = call_core("generate", arguments.get())) throw ExitCode{code};
  });
}

}  // namespace athanor
