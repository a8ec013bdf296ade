// athanor lr-find CONFIG.toml: a range test of learning rates for each optimizer, or the best rates of several widths.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>

#include "base/error.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/core.h"
#include "cli/options.h"
#include "cli/output_check.h"
#include "config/optimizer_config.h"

namespace athanor::inline cli {
namespace {

constexpr double kLowestRate = 1e-12, kHighestRate = 1e6;

// A file that is there is replaced only if it has results of this command.
void check_results_file(const std::string& path) {
  ATHANOR_CHECK(path.ends_with(".json"), "--out {}: the results are JSON; give it a name that ends with .json", path);
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return;
  const std::string begins = "{\"command\":\"lr-find";
  std::string start(begins.size(), ' ');
  std::ifstream(path, std::ios::binary).read(start.data(), static_cast<std::streamsize>(start.size()));
  ATHANOR_CHECK(start == begins, "--out {} is there and has no results of lr-find; name another file, or move it away",
                path);
}

// The names in lists with commas. A name that is missing is empty, which check_optimizers refuses.
std::vector<std::string> names_of(const std::vector<std::string>& lists) {
  std::vector<std::string> names;
  for (const std::string& list : lists) {
    for (size_t begin = 0, end = 0; end != list.npos; begin = end + 1) {
      end = list.find(',', begin);
      names.push_back(list.substr(begin, end - begin));
    }
  }
  return names;
}

void check_optimizers(const std::vector<std::string>& names) {
  std::set<std::string> seen;
  for (const std::string& name : names) {
    ATHANOR_CHECK(!name.empty(), "--optimizers {}: a name is missing; give names with one comma between two of them",
                  join(names, ","));
    ATHANOR_CHECK(std::ranges::count(optimizer_names(), name) > 0, "--optimizers: expected one of {}, got \"{}\"",
                  join(optimizer_names()), name);
    ATHANOR_CHECK(seen.insert(name).second, "--optimizers names {} twice; name each optimizer once", name);
  }
}

void check_lr_find(const LrFindArguments& given) {
  check_optimizers(given.optimizers);
  ATHANOR_CHECK(given.from < given.to,
                "--from {:g} is not below --to {:g}; the rates grow from the first to the second", given.from,
                given.to);
  ATHANOR_CHECK(given.rates.empty() || !given.widths.empty(),
                "--rates is the grid of --widths; add --widths, or give --from and --to for a range test");
  ATHANOR_CHECK(given.optimizers.size() < 2 || given.widths.empty(),
                "--widths compares widths of one optimizer, and --optimizers names {}; name one",
                given.optimizers.size());
  ATHANOR_CHECK(given.rates.size() != 1 && std::ranges::is_sorted(given.rates, std::ranges::less_equal()),
                "--rates needs at least two rates, each above the one before, such as 1e-3,2e-3,4e-3");
  if (!given.out.empty()) check_results_file(given.out);
  if (!given.figure.empty()) check_picture_file("--figure", given.figure);
}

}  // namespace

void add_lr_find_command(CLI::App& app) {
  const auto arguments = std::make_shared<LrFindArguments>();
  auto* command = app.add_subcommand(
      "lr-find",
      "Find a learning rate: a sweep over rates for each optimizer, or the best rate over widths of the model");
  command->add_option("config", arguments->config_file, "The run's configuration, a TOML file")->required();
  command->add_option("--set", arguments->overrides, "table.key=value: overrides a field; may be repeated")
      ->allow_extra_args(false);
  command
      ->add_option_function<std::vector<std::string>>(
          "--optimizers", [arguments](const auto& lists) { arguments->optimizers = names_of(lists); },
          "Values of optimizer.name, separated by commas, each with a sweep; by default the configuration's")
      ->allow_extra_args(false);
  command
      ->add_option(
          "--steps", arguments->steps,
          "Steps of a sweep, or of each run with --widths; by default a tenth of train.steps, from 100 to 1000")
      ->check(CLI::Range(20, 1'000'000));
  command->add_option("--from", arguments->from, "The lowest rate of a sweep")
      ->check(number_between(kLowestRate, kHighestRate))
      ->capture_default_str();
  command->add_option("--to", arguments->to, "The highest rate; a sweep ends earlier when the loss blows up")
      ->check(number_between(kLowestRate, kHighestRate))
      ->capture_default_str();
  command
      ->add_option(
          "--widths", arguments->widths,
          "Values of model.hidden_size, separated by commas: small models of these widths are trained at a grid "
          "of rates, to see whether the best rate stays")
      ->delimiter(',')
      ->check(CLI::Range(1, 1 << 20))
      ->allow_extra_args(false);
  command
      ->add_option("--rates", arguments->rates,
                   "The grid of --widths, separated by commas; by default five rates around the middle of the "
                   "steepest and the cautious one of a sweep with the narrowest model")
      ->delimiter(',')
      ->check(number_between(kLowestRate, kHighestRate))
      ->allow_extra_args(false);
  command->add_option("--out", arguments->out, "Write the results as JSON to this file")->check(new_file());
  command->add_option("--figure", arguments->figure, "Write a picture of the curves, an SVG, to this file")
      ->check(new_file());
  command->add_flag("--json", arguments->json, "Print the results as JSON in place of the table");
  command->footer(
      "It trains in memory: the folder of the run is neither read nor written. Gradients are clipped and weights "
      "decay\n"
      "as configured. The same command gives the same numbers. Exits with 2 if a sweep diverges at once or never "
      "moves.\n"
      "Example: athanor lr-find run.toml --optimizers adamw --figure sweep.svg\n"
      "Example: athanor lr-find run.toml --set optimizer.scaling=mup --set optimizer.base_width=64 --widths "
      "64,128,256");
  command->callback([arguments] {
    check_lr_find(*arguments);
    call_core("lr_find", arguments.get());
  });
}

}  // namespace athanor::inline cli
