// athanor verify CONFIG.toml [--set a.b=c]... [--plant NAME] [--dry-run --ranks N [--rank R]]

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "base/error.h"
#include "base/fault_announcement.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/core.h"
#include "cli/options.h"
#include "cli/output_check.h"
#include "verify/plants/names.h"

namespace athanor::inline cli {

namespace {

void list_plants() {
  for (const auto& plant : plants::kPlantNames) fmt::print("{}: {} (needs {})\n", plant.name, plant.does, plant.needs);
}

void refuse_unknown_plant(const std::string& name) {
  std::vector<std::string> known;
  for (const auto& plant : plants::kPlantNames) known.emplace_back(plant.name);
  ATHANOR_CHECK(plants::find_plant(name), "--plant {}: there is no such fault{}; there are {}", name,
                did_you_mean(name, known), join(known));
}

}  // namespace

void add_verify_command(CLI::App& app) {
  const auto arguments = std::make_shared<VerifyArguments>();
  auto* command = app.add_subcommand(
      "verify", "Run a small version of a model over the ranks of this job, and on one rank, and compare the two");
  command->add_option("config", arguments->config_file, "The run's configuration, a TOML file");
  command->add_option("--set", arguments->overrides, "table.key=value: overrides a field; may be repeated")
      ->allow_extra_args(false);
  command->add_option("--steps", arguments->steps, "Optimizer steps to compare")->check(CLI::Range(1, 1000));
  add_type_option(*command, arguments->dtype,
                  "Compare only in this type; by default in float32, and in bfloat16 if that is the run's train.dtype");
  command->add_option("--draws", arguments->draws, "Number of data sets for the comparison in bfloat16")
      ->check(CLI::Range(1, 100));
  command->add_flag("--keep-size", arguments->keep_size, "Use the model and batch as configured, not a small version");
  command->add_flag("--keep-depth", arguments->keep_depth,
                    "Use all layers and as many buckets as configured; only widths, vocabulary and sequences shrink");
  command
      ->add_option("--reference", arguments->reference,
                   "What the layout is compared with: the same code on one rank (default), or portable forms in fp64, "
                   "which were written separately and also find what is wrong on one rank")
      ->check(CLI::IsMember({"one_rank", "portable"}));
  command
      ->add_option("--then", arguments->then,
                   "table.key=value: after half of the steps the run saves a checkpoint, and the small run with this "
                   "change resumes from it on the same ranks; may be repeated")
      ->allow_extra_args(false);
  command->add_flag("--twice", arguments->twice, "Run the layout twice: all bits must be equal");
  command->add_option("--keep", arguments->keep, "The folder in which the traces of all runs stay")
      ->check(new_folder());
  command->add_option("--plant", arguments->plant,
                      "A fault to plant in the layout's run, to see that it is named; \"list\" prints all");
  const auto dry = std::make_shared<DryRunArguments>();
  auto* is_dry =
      command->add_flag("--dry-run", dry->asked, "Run nothing: print what one rank of a job would hold and send");
  command->add_option("--ranks", dry->ranks, "Ranks of that job")->check(CLI::Range(1, 1 << 24))->needs(is_dry);
  command->add_option("--rank", dry->rank, "The rank; by default the one that needs most memory")
      ->check(CLI::Range(0, (1 << 24) - 1))
      ->needs(is_dry);
  command->add_flag("--json", dry->json, "Print the dry run as JSON")->needs(is_dry);
  command->add_option("--as-reference", arguments->as_reference, "What the reference runs; verify starts this itself")
      ->group("");
  command->add_option("--of-ranks", arguments->of_ranks, "The number of ranks whose traces it follows")->group("");
  command->add_option("--draw", arguments->draw, "The first of its data sets")->group("");
  command->footer(
      "Exits with 0 if every number, gradient and parameter is within its bound; if not, it prints their names and "
      "exits with 1.\n"
      "Example: mpirun -n 8 athanor verify run.toml --set parallelism.expert_parallel_degree=4\n"
      "Example: athanor verify run.toml --reference portable\n"
      "Example: athanor verify run.toml --dry-run --ranks 12288");
  command->callback([arguments, dry] {
    if (arguments->plant == "list") {
      announce_armed_faults();
      return list_plants();
    }
    if (arguments->config_file.empty() && arguments->as_reference.empty()) throw CLI::RequiredError("config");
    if (!arguments->plant.empty()) refuse_unknown_plant(arguments->plant);
    if (dry->asked) {
      dry->config_file = arguments->config_file;
      dry->overrides = arguments->overrides;
      call_core("dry_run", dry.get());
      return;
    }
    call_core("verify", arguments.get());
  });
}

}  // namespace athanor::inline cli
