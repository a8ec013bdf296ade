#include "tuning/sweep_report.h"

#include <fmt/core.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/text.h"

namespace athanor::inline tuning {
namespace {

using nlohmann::ordered_json;

ordered_json number(std::optional<double> value) {
  return value && std::isfinite(*value) ? ordered_json(*value) : ordered_json(nullptr);
}

std::string clipping_text(const OptimizerConfig& optimizer) {
  return optimizer.max_grad_norm > 0 ? fmt::format("gradients are clipped to a norm of {:g}", optimizer.max_grad_norm)
                                     : "gradients are not clipped";
}

// The smoothed loss at a rate, between the two points around it.
double smoothed_at(const std::vector<RangePoint>& points, double lr) {
  size_t i = 1;
  while (i + 1 < points.size() && points[i].smoothed_lr < lr) ++i;
  const RangePoint &a = points[i - 1], &b = points[i];
  const double share = std::log(lr / a.smoothed_lr) / std::log(b.smoothed_lr / a.smoothed_lr);
  return a.smoothed + std::clamp(share, 0.0, 1.0) * (b.smoothed - a.smoothed);
}

Curve curve_of(const OptimizerSweep& sweep) {
  Curve curve{.name = sweep.optimizer};
  // As far above the first loss as the quarter of what it has fallen.
  const double most = sweep.result.first_loss + (sweep.result.first_loss - sweep.result.lowest) / 4;
  for (const RangePoint& point : sweep.points) {
    if (is_drawable(point.loss)) curve.faint.push_back({std::log10(point.lr), point.loss});
    if (point.smoothed <= most) curve.line.push_back({std::log10(point.smoothed_lr), point.smoothed});
  }
  const auto mark = [&](const char* name, std::optional<double> lr) {
    if (!lr || *lr < sweep.points.front().smoothed_lr) return;
    curve.dots.push_back({std::log10(*lr), smoothed_at(sweep.points, *lr)});
    curve.dots_name += fmt::format("{}{} {}", curve.dots_name.empty() ? "" : ", ", name, rate_text(lr));
  };
  mark("steepest", sweep.result.steepest);
  mark("cautious", sweep.result.cautious());
  return curve;
}

std::string suggestion(const OptimizerSweep& sweep, const std::string& rate) {
  return fmt::format(
      "{}: take --set optimizer.lr={}, {}; a long run wants a lower rate than a short one\n", sweep.optimizer, rate,
      sweep.result.cautious() ? "the geometric middle of the rate of steepest descent and the cautious one"
                              : "the rate of steepest descent");
}

}  // namespace

std::string rate_text(std::optional<double> lr) { return lr ? fmt::format("{:.2e}", *lr) : "-"; }

std::string sweep_table(const SweepReport& report) {
  const RunConfig& config = report.config;
  std::string text = fmt::format(
      "{} steps at rates from {:g} to {:g}, each with {} sequences of {} tokens; {}, and weights decay by {:g}, as "
      "configured\n",
      report.range.steps, report.range.from, report.range.to, config.train.global_batch_size, config.data.seq_len,
      clipping_text(config.optimizer), config.optimizer.weight_decay);
  text += fmt::format("{:<12}{:>12}{:>10}{:>18}{:>12}{:>24}\n", "optimizer", "first loss", "lowest", "steepest descent",
                      "blow-up", "cautious (blow-up/10)");
  for (const OptimizerSweep& sweep : report.sweeps) {
    const RangeResult& result = sweep.result;
    text +=
        fmt::format("{:<12}{:>12.4f}{:>10.4f}{:>18}{:>12}{:>24}\n", sweep.optimizer, result.first_loss, result.lowest,
                    rate_text(result.steepest), rate_text(result.blow_up), rate_text(result.cautious()));
  }
  for (const OptimizerSweep& sweep : report.sweeps) {
    if (!sweep.result.blow_up && sweep.result.fault.empty())
      text += fmt::format("{}: the loss has not blown up at {:g}; a higher --to shows where it does\n", sweep.optimizer,
                          report.range.to);
  }
  for (const OptimizerSweep& sweep : report.sweeps)
    if (const auto lr = sweep.result.suggested()) text += suggestion(sweep, rate_text(lr));
  return text;
}

std::string sweep_json(const SweepReport& report, const std::string& command) {
  ordered_json all = {{"command", command},
                      {"steps", report.range.steps},
                      {"from", report.range.from},
                      {"to", report.range.to},
                      {"window", RangeTest::window(report.range.steps)},
                      {"max_grad_norm", report.config.optimizer.max_grad_norm},
                      {"weight_decay", report.config.optimizer.weight_decay},
                      {"optimizers", ordered_json::array()}};
  for (const OptimizerSweep& sweep : report.sweeps) {
    ordered_json points = ordered_json::array();
    for (const RangePoint& point : sweep.points)
      points.push_back({{"lr", point.lr},
                        {"loss", number(point.loss)},
                        {"smoothed", number(point.smoothed)},
                        {"smoothed_lr", point.smoothed_lr}});
    const RangeResult& result = sweep.result;
    all["optimizers"].push_back({{"name", sweep.optimizer},
                                 {"first_loss", number(result.first_loss)},
                                 {"lowest", number(result.lowest)},
                                 {"steepest", number(result.steepest)},
                                 {"blow_up", number(result.blow_up)},
                                 {"cautious", number(result.cautious())},
                                 {"suggested", number(result.suggested())},
                                 {"fault", result.fault.empty() ? ordered_json(nullptr) : ordered_json(result.fault)},
                                 {"points", std::move(points)}});
  }
  return all.dump();
}

Figure sweep_figure(const SweepReport& report) {
  Figure figure{.title = "training loss", .x_label = "learning rate", .log_x = true, .holds_faint = false};
  figure.notes = {fmt::format("The line is the exponential mean over about {:g} steps; the pale one has every step.",
                              RangeTest::window(report.range.steps))};
  for (const OptimizerSweep& sweep : report.sweeps) {
    figure.curves.push_back(curve_of(sweep));
    figure.curves.back().ink = figure.curves.size() - 1;
  }
  return figure;
}

std::vector<std::string> sweep_faults(const SweepReport& report) {
  std::vector<std::string> lines;
  for (const OptimizerSweep& sweep : report.sweeps) {
    if (!sweep.result.fault.empty()) lines.push_back(fmt::format("{}: {}", sweep.optimizer, sweep.result.fault));
  }
  return lines;
}

}  // namespace athanor::inline tuning
