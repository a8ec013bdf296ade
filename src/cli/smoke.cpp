// athanor smoke checks if this build, on this machine, still computes the same bits.

#include <CLI/CLI.hpp>
#include <memory>

#include "cli/commands.h"
#include "cli/core.h"
#include "cli/device_option.h"
#include "cli/exit_code.h"
#include "cli/output_check.h"

namespace athanor {

void add_smoke_command(CLI::App& app) {
  const auto arguments = std::make_shared<SmokeArguments>();
  auto* command =
      app.add_subcommand("smoke",
                         "Train a dense and a sparse small model for 50 steps, in both types if the CPU's products "
                         "widen bf16, and compare every loss and gradient norm, bit by bit, with a golden file; on a "
                         "device, with a second run");
  command->add_option("--golden-dir", arguments->golden_dir, "The folder of golden files, one for each kind of machine")
      ->check(new_folder());
  command->add_flag("--update", arguments->update, "Write this machine's golden file; commit it with the reason");
  add_device_option(*command, arguments->device, "What it computes on");
  command->callback([arguments] {
    if (const int code = call_core("smoke", arguments.get())) throw ExitCode{code};
  });
}

}  // namespace athanor
