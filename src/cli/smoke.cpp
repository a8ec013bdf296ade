// athanor smoke checks if this build, on this machine, still computes the same bits.

#include <CLI/CLI.hpp>
#include <memory>

#include "cli/commands.h"
#include "cli/core.h"
#include "cli/options.h"
#include "cli/output_check.h"

namespace athanor::inline cli {

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
  auto* trace = command
                    ->add_option("--trace", arguments->trace,
                                 "Also write a hash of every tensor of every step, in the order of computation, to "
                                 "this file or pipe")
                    ->check(new_file());
  command
      ->add_option("--trace-tensor", arguments->trace_tensor,
                   "Only this tensor, with its values, as MODEL:STEP:PHASE:NAME, such as "
                   "dense:3:forward.0:model.layers.1.mlp; trains no further than that")
      ->needs(trace);
  auto* against = command
                      ->add_option("--against", arguments->against,
                                   "The program of another build, or its folder: name the first step and tensor "
                                   "in which the two differ, and by how much (code 1), or that none does")
                      ->check(CLI::Validator(
                          [](const std::string& text) {
                            return text.empty() ? "expected the program of another build, or its folder, got none" : "";
                          },
                          ""));
  for (const char* other : {"--golden-dir", "--update", "--trace", "--trace-tensor"})
    against->excludes(command->get_option(other));
  command
      ->add_option("--timeout", arguments->timeout_s,
                   "Seconds that each run of the other build may take (the smoke test takes a few), or a duration")
      ->check(CLI::Range(1, 100'000))
      ->transform(duration_as_seconds())
      ->needs(against)
      ->capture_default_str();
  command->callback([arguments] { call_core("smoke", arguments.get()); });
}

}  // namespace athanor::inline cli
