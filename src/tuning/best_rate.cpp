#include "tuning/best_rate.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace athanor::inline tuning {
namespace {

constexpr double kLeastError = 0.01;

struct Difference {
  double mean = 0, error = 0;
};

// The losses of `a` above those of `b`, batch by batch.
Difference difference(const RateLosses& a, const RateLosses& b) {
  const auto count = static_cast<double>(a.losses.size());
  double mean = 0, squares = 0;
  for (size_t i = 0; i < a.losses.size(); ++i) mean += (a.losses[i] - b.losses[i]) / count;
  for (size_t i = 0; i < a.losses.size(); ++i) squares += std::pow(a.losses[i] - b.losses[i] - mean, 2);
  return {mean, count > 1 ? std::sqrt(squares / (count - 1) / count) : 0};
}

// The rates' logarithms are at −left, 0 and right; the losses there at l.mean, 0 and r.mean, none below 0.
struct Vertex {
  double at, error;
};
Vertex vertex_of(double left, double right, const Difference& l, const Difference& r) {
  // y = a x² + b x through the three points; the vertex is at −b / (2a).
  const auto at = [&](double dl, double dr) {
    const double a = (dr / right + dl / left) / (left + right), b = dr / right - a * right;
    return a > 0 ? -b / (2 * a) : 0;
  };
  // The derivatives, by differences that are exact to far more digits than the errors have.
  const double centre = at(l.mean, r.mean), h = 1e-6 * std::max(l.mean + r.mean, 1e-12);
  const double of_l = (at(l.mean + h, r.mean) - centre) / h, of_r = (at(l.mean, r.mean + h) - centre) / h;
  return {centre, std::hypot(of_l * l.error, of_r * r.error)};
}

struct Fit {
  double mean_x = 0, mean = 0, slope = 0;   // the line is mean + slope · (x − mean_x)
  double weight = 0, squares = 0;           // sums of weights, and of weights · (x − mean_x)²
  double excess_line = 1, excess_mean = 1;  // factors by which the rates scatter more than their errors allow
};

double error_of(const WidthRate& rate) { return std::max(rate.best.log_error, kLeastError); }

Fit fit(const std::vector<WidthRate>& rates) {
  Fit fit;
  const auto x = [](const WidthRate& rate) { return std::log(static_cast<double>(rate.width)); };
  const auto w = [](const WidthRate& rate) { return 1 / std::pow(error_of(rate), 2); };
  for (const WidthRate& rate : rates) fit.weight += w(rate);
  for (const WidthRate& rate : rates) {
    fit.mean_x += w(rate) * x(rate) / fit.weight;
    fit.mean += w(rate) * std::log(rate.best.lr) / fit.weight;
  }
  double products = 0;
  for (const WidthRate& rate : rates) {
    fit.squares += w(rate) * std::pow(x(rate) - fit.mean_x, 2);
    products += w(rate) * (x(rate) - fit.mean_x) * std::log(rate.best.lr);
  }
  fit.slope = rates.size() > 1 ? products / fit.squares : 0;
  double of_line = 0, of_mean = 0;
  for (const WidthRate& rate : rates) {
    const double off = std::log(rate.best.lr) - fit.mean;
    of_mean += w(rate) * off * off;
    of_line += w(rate) * std::pow(off - fit.slope * (x(rate) - fit.mean_x), 2);
  }
  const auto count = static_cast<double>(rates.size());
  if (count > 1) fit.excess_mean = std::max(1.0, std::sqrt(of_mean / (count - 1)));
  if (count > 2) fit.excess_line = std::max(1.0, std::sqrt(of_line / (count - 2)));
  return fit;
}

}  // namespace

double RateLosses::mean() const {
  double sum = 0;
  for (const double loss : losses) sum += loss / static_cast<double>(losses.size());
  return std::isfinite(sum) ? sum : std::numeric_limits<double>::infinity();
}

BestRate best_rate(const std::vector<RateLosses>& grid) {
  const auto best = std::ranges::min_element(grid, {}, &RateLosses::mean);
  BestRate result{best->lr, 0, best->mean(), 0};
  const bool has_left = best != grid.begin(), has_right = best + 1 != grid.end();
  if (!has_left || !has_right) result.edge = has_left ? 1 : -1;
  const double left = has_left ? std::log(best->lr / (best - 1)->lr) : std::log((best + 1)->lr / best->lr);
  const double right = has_right ? std::log((best + 1)->lr / best->lr) : left;
  const double bracket = (left + right) / 2 / std::sqrt(3.0);
  result.log_error = bracket;
  if (result.edge != 0 || !std::isfinite((best - 1)->mean()) || !std::isfinite((best + 1)->mean())) return result;
  const Vertex vertex = vertex_of(left, right, difference(*(best - 1), *best), difference(*(best + 1), *best));
  result.lr = best->lr * std::exp(vertex.at);
  result.log_error = std::min(vertex.error, bracket);
  return result;
}

Transfer transfer_to(int64_t target, const std::vector<WidthRate>& rates, bool scaled, double grid_step) {
  const Fit line = fit(rates);
  Transfer transfer;
  const auto [narrowest, widest] = std::ranges::minmax(rates, {}, &WidthRate::width);
  const double span = std::log(static_cast<double>(widest.width) / static_cast<double>(narrowest.width));
  const bool has_line = span > 0;
  transfer.exponent = has_line ? line.slope : std::nan("");
  transfer.exponent_error = has_line ? line.excess_line / std::sqrt(line.squares) : std::nan("");
  transfer.stays = has_line && (std::abs(transfer.exponent) <= 2 * transfer.exponent_error ||
                                std::abs(transfer.exponent) * span <= std::log(grid_step));
  if (scaled || !has_line) {
    transfer.lr = std::exp(line.mean);
    transfer.log_error = line.excess_mean / std::sqrt(line.weight);
    return transfer;
  }
  const double ahead = std::log(static_cast<double>(target)) - line.mean_x;
  transfer.lr = std::exp(line.mean + line.slope * ahead);
  transfer.log_error = line.excess_line * std::sqrt(1 / line.weight + ahead * ahead / line.squares);
  return transfer;
}

}  // namespace athanor::inline tuning
