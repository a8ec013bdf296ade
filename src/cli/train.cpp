// athanor train CONFIG.toml [--set a.b=c]...

#include <CLI/CLI.hpp>
#include <memory>

#include "cli/commands.h"
#include "cli/core.h"

namespace athanor::inline cli {

void add_train_command(CLI::App& app) {
  const auto arguments = std::make_shared<TrainArguments>();
  auto* command = app.add_subcommand(
      "train", "Train a model, or continue the run in its run folder; `athanor config` explains every field");
  command->add_option("config", arguments->config_file, "The run's configuration, a TOML file")->required();
  command->add_option("--set", arguments->overrides, "table.key=value: overrides a field; may be repeated")
      ->allow_extra_args(false);
  command->footer(
      "A first SIGTERM or SIGINT finishes the step, saves and exits with 143 or 130; a second one exits at once.\n"
      "Exit codes: 0 complete; 2 your input was refused, nothing was changed; 10 stopped as asked and saved; 11 "
      "stopped\n"
      "or complete, but the last save failed; 74 I/O failed; 75 wrong numbers of one node, which is named; 76 numbers\n"
      "that are not finite; 78 a collective timed out or a peer was lost; 79 out of memory; 1 anything else. The rank\n"
      "that failed first writes RUN/log/last-words.json. See docs/exit-codes.md, docs/failures.md and "
      "docs/run-folder.md.\n"
      "Of several ranks, the first one logs; ATHANOR_LOG_RANK=N in the environment shows the messages of rank N too.\n"
      "Example: athanor train recipes/olmoe-tiny.toml --set data.path=data/ --set train.steps=2000");
  command->callback([arguments] { call_core("train", arguments.get()); });
}

}  // namespace athanor::inline cli
