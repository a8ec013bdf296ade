#include "tuning/sweep.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>

#include "base/console.h"
#include "base/log.h"

namespace athanor::inline tuning {
namespace {

constexpr int64_t kFewestSteps = 100, kMostSteps = 1000;
constexpr size_t kMostFurther = 4;

// The steps of a sweep or a training, with the time that is left, for whoever sits at the first rank's terminal.
class StepProgress {
 public:
  StepProgress(const std::string& what, int64_t steps, const comm::World& world) {
    if (world.rank() == 0) bar_.emplace(what, static_cast<uint64_t>(steps), "steps", kLongWork_s);
  }
  void took_step() {
    if (bar_) bar_->add(1);
  }

 private:
  std::optional<ProgressBar> bar_;
};

// The losses of the last tenth of the steps, or what is not finite. `which` tells its place: "training 2 of 5".
RateLosses run_at(const RunConfig& config, const ShortRuns& runs, const std::string& which) {
  log::info("{}: {}, rate {:.3g}, {} steps", which, config.optimizer.name, config.optimizer.lr, config.train.steps);
  ShortRun run(config, runs);
  const int64_t steps = config.train.steps, kept = std::max<int64_t>(2, steps / 10);
  RateLosses run_losses{config.optimizer.lr, {}};
  std::optional<StepProgress> progress(std::in_place, which, steps, runs.world());
  for (int64_t step = 0; step < steps; ++step) {
    const double loss = run.step();
    progress->took_step();
    if (!std::isfinite(loss)) {
      run_losses.losses = {loss};
      break;
    }
    if (step >= steps - kept) run_losses.losses.push_back(loss);
  }
  progress.reset();
  log::info("hidden_size {}, rate {:.3g}: loss {:.4f}", config.model.hidden_size, run_losses.lr, run_losses.mean());
  return run_losses;
}

WidthGrid try_width(const RunConfig& config, const ShortRuns& runs, const std::vector<double>& rates,
                    const std::string& which) {
  WidthGrid width_grid{config.model.hidden_size, {}, {}};
  size_t planned = rates.size();
  const auto at = [&](double lr) {
    return run_at(grid_config(config, config.train.steps, lr), runs,
                  fmt::format("{}, training {} of {}", which, width_grid.grid.size() + 1, planned));
  };
  for (const double lr : rates) width_grid.grid.push_back(at(lr));
  for (size_t further = 0; further < kMostFurther; ++further) {
    width_grid.best = best_rate(width_grid.grid);
    // With losses that are all infinite the first is the best: lower rates are tried.
    if (width_grid.best.edge == 0) break;
    const auto& grid = width_grid.grid;
    ++planned;
    if (width_grid.best.edge < 0)
      width_grid.grid.insert(grid.begin(), at(grid[0].lr * (grid[0].lr / grid[1].lr)));
    else
      width_grid.grid.push_back(at(grid.back().lr * (grid.back().lr / grid[grid.size() - 2].lr)));
  }
  width_grid.best = best_rate(width_grid.grid);
  if (!std::isfinite(width_grid.best.loss)) width_grid.best = {};
  return width_grid;
}

}  // namespace

int64_t usual_sweep_steps(const RunConfig& config) {
  return std::clamp(config.train.steps / 10, kFewestSteps, kMostSteps);
}

RunConfig sweep_config(const RunConfig& config, int64_t steps) {
  RunConfig sweep = short_run_config(config, steps);
  OptimizerConfig& o = sweep.optimizer;
  o.schedule = LrSchedule::kConstant;
  o.warmup_steps = o.decay_steps = o.schedule_steps = 0;
  o.warmup_tokens = o.decay_tokens = o.schedule_tokens = 0;
  return sweep;
}

RunConfig grid_config(const RunConfig& config, int64_t steps, double lr) {
  RunConfig run = short_run_config(config, steps);
  const double factor = lr / run.optimizer.lr;
  run.optimizer.min_lr *= factor;
  for (OptimizerGroupConfig& group : run.optimizer.groups) group.lr *= factor;
  run.optimizer.lr = lr;
  return run;
}

std::vector<OptimizerSweep> sweep_rates(const ShortRuns& runs, const RateRange& range) {
  std::vector<OptimizerSweep> sweeps;
  for (const RunConfig& config : runs.configs()) {
    log::info("sweep {} of {}: {}, {} steps at rates from {:g} to {:g}", sweeps.size() + 1, runs.configs().size(),
              config.optimizer.name, range.steps, range.from, range.to);
    RangeTest test(range);
    ShortRun run(config, runs);
    std::optional<StepProgress> progress(std::in_place, "sweep of " + config.optimizer.name, range.steps, runs.world());
    while (!test.is_over()) {
      run.set_rate(test.next_rate());
      test.add(run.step());
      progress->took_step();
    }
    progress.reset();
    log::info("{}: {} steps, up to a rate of {:.3g}", config.optimizer.name, test.points().size(),
              test.points().back().lr);
    sweeps.push_back({config.optimizer.name, test.points(), test.result()});
  }
  return sweeps;
}

std::vector<WidthGrid> try_widths(const ShortRuns& runs, const std::vector<double>& rates) {
  std::vector<WidthGrid> grids;
  for (const RunConfig& config : runs.configs()) {
    const auto which =
        fmt::format("hidden_size {} ({} of {})", config.model.hidden_size, grids.size() + 1, runs.configs().size());
    grids.push_back(try_width(config, runs, rates, which));
  }
  return grids;
}

}  // namespace athanor::inline tuning
