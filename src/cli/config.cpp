// athanor config [CONFIG.toml] [--set a.b=c]... [--ranks N] prints the resolved configuration, each field with its
// meaning.

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iterator>
#include <memory>

#include "arch/flops.h"
#include "arch/inventory.h"
#include "base/error.h"
#include "base/fault_announcement.h"
#include "base/log.h"
#include "base/text.h"
#include "checkpoint/hf_import.h"
#include "checkpoint/model_identity.h"
#include "cli/commands.h"
#include "cli/layout_tables.h"
#include "config/checks.h"
#include "config/dump.h"
#include "config/toml_reader.h"
#include "config/training_stages.h"
#include "layout/fitted_batch.h"
#include "layout/group_checks.h"

namespace athanor::inline cli {
namespace {

struct ConfigArguments {
  std::string file;
  std::vector<std::string> overrides;
  bool brief = false;
  int ranks = 0;
};

// The steps and tokens of each size of a batch ramp, which follow from its fields.
void print_ramp(const RunConfig& config) {
  int64_t tokens = 0;
  for (const TrainingStage& part : training_stages(config)) {
    const int64_t end = std::min(part.end(), config.train.steps);
    if (!part.is_of_ramp || part.begin >= end) continue;
    tokens += part.tokens_between(0, end);
    fmt::print("# steps {} to {}: {}, learning rate × {:.4g}; {} tokens seen at the end\n", part.begin + 1, end,
               part.name, part.config.optimizer.lr / config.optimizer.lr,
               format_thousands(static_cast<double>(tokens)));
  }
}

void print(const ConfigArguments& arguments) {
  const FindMore misfits = [&](RunConfig& config) {
    auto lines = arguments.ranks > 0 ? fit_to_ranks(config, arguments.ranks) : std::vector<std::string>{};
    if (config.model.from.empty()) std::ranges::move(find_group_faults(config), std::back_inserter(lines));
    return lines;
  };
  RunConfig config = arguments.file.empty() ? parse_run_config("", "defaults", arguments.overrides, misfits)
                                            : load_run_config(arguments.file, arguments.overrides, misfits);
  for (const auto& line : resolve_model_from(config)) log::warn("{}", line);
  if (!config.model.from.empty()) {
    auto faults = find_contradictions(config);
    std::ranges::move(misfits(config), std::back_inserter(faults));
    std::ranges::move(find_group_faults(config), std::back_inserter(faults));
    ATHANOR_CHECK(faults.empty(), "{}", join(faults, "\n"));
  }
  announce_armed_faults();
  const std::string tables = arguments.ranks > 0 ? layout_tables(config, arguments.ranks) : "";
  fmt::print("{}", dump_run_config(config, !arguments.brief));
  if (config.train.dtype_was_auto) fmt::print("\n# train.dtype = \"auto\" is {} on this machine\n", config.train.dtype);
  if (!config.model.from.empty() && !has_weights(config.model.from))
    fmt::print("\n# no weights in {}: a run begins with random ones\n", config.model.from);
  if (arguments.ranks > 0) fmt::print("\n{}", tables);
  fmt::print("\n# {:.4g} B parameters, {:.4g} B active for a token",
             static_cast<double>(count_parameters(config.model)) * 1e-9,
             static_cast<double>(count_active_parameters(config.model)) * 1e-9);
  if (const auto seq_len = config.data.seq_len) {
    fmt::print("; {:.4g} TFLOP a step",
               count_train_flops(config.model, config.train.global_batch_size, seq_len) * 1e-12);
  }
  fmt::print("\n");
  print_ramp(config);
}

}  // namespace

void add_config_command(CLI::App& app) {
  const auto arguments = std::make_shared<ConfigArguments>();
  auto* command = app.add_subcommand("config", "Print the resolved configuration with each field's meaning");
  command->add_option("config", arguments->file, "A TOML file; without one, the defaults");
  command->add_option("--set", arguments->overrides, "table.key=value: overrides a field; may be repeated")
      ->allow_extra_args(false);
  command->add_flag("--brief", arguments->brief, "Leave out the comments");
  command
      ->add_option("--ranks", arguments->ranks,
                   "Also print the layout on this many ranks: its faults, or tables of its state and traffic")
      ->check(CLI::Range(1, 1 << 20));
  command->callback([arguments] { print(*arguments); });
}

}  // namespace athanor::inline cli
