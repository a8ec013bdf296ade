#include "tuning/width_report.h"

#include <fmt/core.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "tuning/sweep_report.h"

namespace athanor::inline tuning {
namespace {

using nlohmann::ordered_json;

bool is_scaled(const WidthReport& report) { return report.config.optimizer.scaling != WidthScaling::kNone; }

Transfer transfer_of(const WidthReport& report) {
  return transfer_to(report.config.model.hidden_size, enclosed_rates(report), is_scaled(report), report.grid_step);
}

// The best rate of a width as a bound, if the grid does not enclose it.
std::string best_text(const BestRate& best) {
  if (best.lr == 0) return "every rate diverged";
  return (best.edge < 0 ? "at most " : best.edge > 0 ? "at least " : "") + rate_text(best.lr);
}

std::string factor_text(double log_error) { return fmt::format("x/÷ {:.2f}", std::exp(log_error)); }

std::string meaning(const WidthReport& report) {
  const auto rates = enclosed_rates(report);
  if (rates.empty()) return "";
  const Transfer transfer = transfer_of(report);
  std::string text;
  if (rates.size() > 1)
    text = fmt::format(
        "The best rate changes as hidden_size to the power of {:.2f} ± {:.2f}: it {} within a step of the "
        "grid.\n",
        transfer.exponent, transfer.exponent_error, transfer.stays ? "stays" : "does not stay");
  return text + fmt::format("At hidden_size {}: take --set optimizer.lr={} ({}), {}.\n",
                            report.config.model.hidden_size, rate_text(transfer.lr), factor_text(transfer.log_error),
                            rates.size() == 1   ? "that of the only width whose grid encloses one"
                            : is_scaled(report) ? "the mean of the widths"
                                                : "extrapolated along the widths");
}

}  // namespace

std::vector<WidthRate> enclosed_rates(const WidthReport& report) {
  std::vector<WidthRate> rates;
  for (const WidthGrid& width : report.widths)
    if (width.best.lr > 0 && width.best.edge == 0) rates.push_back({width.width, width.best});
  return rates;
}

std::string width_table(const WidthReport& report) {
  const OptimizerConfig& optimizer = report.config.optimizer;
  std::string text =
      fmt::format("{} with scaling {}{}: {} steps at each rate\n", optimizer.name, optimizer.scaling.word(),
                  is_scaled(report) ? fmt::format(" from base_width {}", optimizer.base_width) : "", report.steps);
  text +=
      fmt::format("{:<14}{:>28}{:>24}{:>16}{:>10}\n", "hidden_size", "rates tried", "best rate", "uncertainty", "loss");
  for (const WidthGrid& width : report.widths) {
    const bool is_enclosed = width.best.lr > 0 && width.best.edge == 0;
    text += fmt::format("{:<14}{:>28}{:>24}{:>16}{:>10}\n", width.width,
                        fmt::format("{} from {} to {}", width.grid.size(), rate_text(width.grid.front().lr),
                                    rate_text(width.grid.back().lr)),
                        best_text(width.best), is_enclosed ? factor_text(width.best.log_error) : "-",
                        width.best.lr > 0 ? fmt::format("{:.4f}", width.best.loss) : "-");
  }
  return text + meaning(report);
}

std::string width_json(const WidthReport& report, const std::string& command) {
  ordered_json all = {{"command", command},
                      {"optimizer", report.config.optimizer.name},
                      {"scaling", report.config.optimizer.scaling.word()},
                      {"base_width", report.config.optimizer.base_width},
                      {"steps", report.steps},
                      {"widths", ordered_json::array()},
                      {"target", nullptr}};
  for (const WidthGrid& width : report.widths) {
    ordered_json grid = ordered_json::array();
    for (const RateLosses& at : width.grid) {
      const double loss = at.mean();
      grid.push_back({{"lr", at.lr}, {"loss", std::isfinite(loss) ? ordered_json(loss) : ordered_json(nullptr)}});
    }
    const bool known = width.best.lr > 0;
    all["widths"].push_back({{"hidden_size", width.width},
                             {"grid", std::move(grid)},
                             {"best", known ? ordered_json(width.best.lr) : ordered_json(nullptr)},
                             {"log_error", known ? ordered_json(width.best.log_error) : ordered_json(nullptr)},
                             {"edge", width.best.edge}});
  }
  const auto rates = enclosed_rates(report);
  if (rates.empty()) return all.dump();
  const Transfer transfer = transfer_of(report);
  const auto if_known = [&](double value) { return rates.size() > 1 ? ordered_json(value) : ordered_json(nullptr); };
  all["target"] = {{"hidden_size", report.config.model.hidden_size},
                   {"lr", transfer.lr},
                   {"log_error", transfer.log_error},
                   {"exponent", if_known(transfer.exponent)},
                   {"exponent_error", if_known(transfer.exponent_error)},
                   {"stays", transfer.stays}};
  return all.dump();
}

Figure width_figure(const WidthReport& report) {
  Figure figure{.title = "training loss of the last steps", .x_label = "learning rate", .log_x = true};
  for (const WidthGrid& width : report.widths) {
    Curve curve{.name = fmt::format("hidden_size {}", width.width), .ink = figure.curves.size()};
    for (const RateLosses& at : width.grid)
      if (std::isfinite(at.mean())) curve.line.push_back({std::log10(at.lr), at.mean()});
    if (width.best.lr > 0) {
      curve.dots.push_back({std::log10(width.best.lr), width.best.loss});
      curve.dots_name = "best rate: " + best_text(width.best);
    }
    figure.curves.push_back(std::move(curve));
  }
  return figure;
}

std::vector<std::string> width_faults(const WidthReport& report) {
  std::vector<std::string> lines;
  if (!enclosed_rates(report).empty()) return lines;
  for (const WidthGrid& width : report.widths) {
    if (width.best.lr == 0 || width.best.edge < 0)
      lines.push_back(
          fmt::format("hidden_size {}: no rate below the lowest one, {}, was tried: begin with lower ones, "
                      "for example --rates {:.0e},{:.0e},{:.0e}",
                      width.width, rate_text(width.grid.front().lr), width.grid.front().lr / 8,
                      width.grid.front().lr / 4, width.grid.front().lr / 2));
    else
      lines.push_back(
          fmt::format("hidden_size {}: no rate above the highest one, {}, was tried: end with higher ones, "
                      "for example --rates {:.0e},{:.0e},{:.0e}",
                      width.width, rate_text(width.grid.back().lr), 2 * width.grid.back().lr, 4 * width.grid.back().lr,
                      8 * width.grid.back().lr));
  }
  return lines;
}

}  // namespace athanor::inline tuning
