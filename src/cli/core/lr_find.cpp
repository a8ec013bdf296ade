#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "base/files.h"
#include "base/launched.h"
#include "base/log.h"
#include "base/signals.h"
#include "base/text.h"
#include "cli/core.h"
#include "config/toml_reader.h"
#include "layout/fitted_batch.h"
#include "layout/layout.h"
#include "ops/cpu_allocator.h"
#include "plot/svg_picture.h"
#include "run/in_world.h"
#include "run/same_settings.h"
#include "run/start.h"
#include "tuning/sweep_report.h"
#include "tuning/width_model.h"
#include "tuning/width_report.h"

namespace {

using namespace athanor;

// Weights of a checkpoint would have to be found, checked and read; a sweep that begins without them would answer
// another question.
void refuse_resume(const CheckpointConfig& checkpoint) {
  ATHANOR_CHECK(checkpoint.resume == "auto" || checkpoint.resume == "never",
                "checkpoint.resume is \"{}\", and lr-find begins with new weights or those of model.from; add "
                "--set checkpoint.resume=auto, or name a folder of weights in model.from",
                checkpoint.resume);
}

// The configuration with each optimizer.
std::vector<RunConfig> read_configs_of_find(const LrFindArguments& given, int ranks) {
  std::vector<RunConfig> configs;
  const auto read = [&](const std::vector<std::string>& overrides) {
    configs.push_back(load_run_config(
        given.config_file, overrides, [&](RunConfig& config) { return fit_to_ranks(config, ranks); },
        given.optimizers));
    require_layout_fits(configs.back(), ranks);
  };
  if (given.optimizers.empty()) read(given.overrides);
  for (const std::string& name : given.optimizers) {
    auto overrides = given.overrides;
    overrides.push_back("optimizer.name=" + name);
    read(overrides);
  }
  refuse_resume(configs.front().checkpoint);
  return configs;
}

std::vector<RunConfig> configs_of_widths(const RunConfig& config, std::vector<int64_t> widths, int ranks) {
  ATHANOR_CHECK(config.model.from.empty(),
                "--widths trains models of other widths from random weights, and model.from is \"{}\"; set it to \"\"",
                config.model.from);
  std::ranges::sort(widths);
  widths.erase(std::unique(widths.begin(), widths.end()), widths.end());
  std::vector<RunConfig> configs;
  for (const int64_t width : widths) configs.push_back(with_width(config, width, ranks));
  return configs;
}

std::string number_list(const auto& numbers) { return fmt::format("{}", fmt::join(numbers, ",")); }

Options options_of_find(const LrFindArguments& given) {
  return {{"--optimizers", join(given.optimizers)},  {"--steps", std::to_string(given.steps)},
          {"--from", fmt::format("{}", given.from)}, {"--to", fmt::format("{}", given.to)},
          {"--widths", number_list(given.widths)},   {"--rates", number_list(given.rates)}};
}

// Prints and writes on the first rank.
void show_found(const LrFindArguments& given, const comm::World& world, const std::string& table,
                const std::string& json, const Figure& figure) {
  if (world.rank() != 0) return;
  if (given.json)
    fmt::print("{}\n", json);
  else
    fmt::print("{}", table);
  if (!given.out.empty()) write_file_atomically(given.out, json + "\n");
  if (!given.figure.empty()) write_file_atomically(given.figure, draw_svg({figure}));
}

template <class Config>
std::vector<RunConfig> made_of_each(const std::vector<RunConfig>& configs, Config config_of) {
  std::vector<RunConfig> made;
  for (const RunConfig& config : configs) made.push_back(config_of(config));
  return made;
}

void find_for_optimizers(const LrFindArguments& given, const std::vector<RunConfig>& configs, int64_t steps,
                         comm::World& world) {
  const ShortRuns runs(made_of_each(configs, [&](const RunConfig& config) { return sweep_config(config, steps); }),
                       world);
  const RateRange range{given.from, given.to, steps};
  const SweepReport report{runs.configs().front(), range, sweep_rates(runs, range)};
  show_found(given, world, sweep_table(report), sweep_json(report, "lr-find"), sweep_figure(report));
  const auto faults = sweep_faults(report);
  ATHANOR_CHECK(faults.empty(), "{}", join(faults, "\n"));
}

// Five rates around the middle of what a sweep with the narrowest model finds: of the steepest and the cautious rate.
std::vector<double> rates_around_sweep(const LrFindArguments& given, const RunConfig& narrowest, int64_t steps,
                                       comm::World& world) {
  const ShortRuns runs({sweep_config(narrowest, steps)}, world);
  const RateRange range{given.from, given.to, steps};
  const RangeResult tested = sweep_rates(runs, range).front().result;
  ATHANOR_CHECK(tested.fault.empty(), "--widths: {}", tested.fault);
  const double centre = *tested.suggested();
  log::info("rates around {} (a sweep with hidden_size {})", rate_text(centre), narrowest.model.hidden_size);
  return {centre / 4, centre / 2, centre, centre * 2, centre * 4};
}

void find_over_widths(const LrFindArguments& given, const RunConfig& config, int64_t steps, comm::World& world) {
  const auto configs = configs_of_widths(config, given.widths, world.size());
  const auto rates = given.rates.empty() ? rates_around_sweep(given, configs.front(), steps, world) : given.rates;
  const ShortRuns runs(
      made_of_each(configs, [&](const RunConfig& each) { return grid_config(each, steps, each.optimizer.lr); }), world);
  const WidthReport report{config, steps, rates[1] / rates[0], try_widths(runs, rates)};
  show_found(given, world, width_table(report), width_json(report, "lr-find --widths"), width_figure(report));
  const auto faults = width_faults(report);
  ATHANOR_CHECK(faults.empty(), "{}", join(faults, "\n"));
}

}  // namespace

ATHANOR_CORE_ENTRY(lr_find) {
  const BrokenPipeGuard pipes;
  const auto& given = *static_cast<const LrFindArguments*>(arguments);
  const auto configs = read_configs_of_find(given, launched().size);
  ops::install_caching_cpu_allocator();
  if (!given.widths.empty()) configs_of_widths(configs.front(), given.widths, launched().size);
  return in_world(world_options(configs.front()), [&](comm::World& world, RunContext&) {
    require_same_options(options_of_find(given), world);
    const int64_t steps = given.steps > 0 ? given.steps : usual_sweep_steps(configs.front());
    if (given.widths.empty())
      find_for_optimizers(given, configs, steps, world);
    else
      find_over_widths(given, configs.front(), steps, world);
    return 0;
  });
}
