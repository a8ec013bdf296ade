// athanor export RUN --out hf-dir, and athanor import hf-dir --out run-dir.

#include <CLI/CLI.hpp>
#include <memory>

#include "cli/commands.h"
#include "cli/core.h"
#include "cli/options.h"
#include "cli/output_check.h"

namespace athanor::inline cli {

void add_export_command(CLI::App& app) {
  const auto arguments = std::make_shared<ExportArguments>();
  auto* command = app.add_subcommand("export", "Write a run's newest checkpoint as a folder that transformers loads");
  command->add_option("run", arguments->run, "A run folder (its newest checkpoint that verifies) or one checkpoint")
      ->required();
  command->add_option("--out", arguments->out, "The folder to write")->required()->check(new_folder());
  add_type_option(*command, arguments->dtype, "Type of the weights")->capture_default_str();
  command
      ->add_option("--max-shard-size", arguments->max_shard_bytes,
                   "Weights beyond it go into several files with an index; 500MB, 5GB, …")
      ->transform(CLI::AsSizeValue(/*kb_is_1000=*/true).description(""))
      ->transform(without_sign())
      ->check(CLI::Range(uint64_t{1}, uint64_t{1} << 60).description(""))
      ->type_name("SIZE")
      ->capture_default_str();
  command->add_flag("--overwrite", arguments->overwrite, "Replace the folder if it exists");
  command->callback([arguments] { call_core("export", arguments.get()); });
}

void add_import_command(CLI::App& app) {
  const auto arguments = std::make_shared<ImportArguments>();
  auto* command =
      app.add_subcommand("import", "Turn a folder of transformers into a run folder, to train on or to evaluate");
  command
      ->add_option("folder", arguments->folder, "config.json and safetensors of a family that `athanor config` lists")
      ->required();
  command->add_option("--out", arguments->out, "The run folder to write")->required()->check(new_folder());
  command->callback([arguments] { call_core("import", arguments.get()); });
}

}  // namespace athanor::inline cli
