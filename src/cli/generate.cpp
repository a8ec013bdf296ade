// athanor generate RUN_OR_HF_DIR --prompt "..."

#include <CLI/CLI.hpp>
#include <memory>

#include "cli/commands.h"
#include "cli/core.h"
#include "cli/exit_code.h"
#include "cli/number_check.h"
#include "cli/type_option.h"
#include "cli/whole_number.h"

namespace athanor {

void add_generate_command(CLI::App& app) {
  const auto arguments = std::make_shared<GenerateArguments>();
  auto* command = app.add_subcommand("generate", "Continue a text");
  command
      ->add_option("model", arguments->model,
                   "A run folder, one of its checkpoints or models, or a folder of transformers")
      ->required();
  command->add_option("--prompt", arguments->prompts, "The text to continue; may be repeated")
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
  command->add_flag("--json", arguments->json, "A JSON object for each prompt: prompt, token ids, text");
  command->callback([arguments] {
    if (const int code = call_core("generate", arguments.get())) throw ExitCode{code};
  });
}

}  // namespace athanor
