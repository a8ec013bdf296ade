#include "report/comparison.h"

#include <algorithm>
#include <cmath>

namespace athanor::inline report {
namespace {

constexpr double kWindow = 0.05;  // share of the common tokens
constexpr size_t kBatches = 10, kFewest = 3;

// Removes the least-squares line through the values.
void detrend(std::vector<double>& values) {
  const auto n = static_cast<double>(values.size());
  double sum_y = 0, sum_xy = 0, sum_xx = 0;
  const double middle = (n - 1) / 2;
  for (size_t i = 0; i < values.size(); ++i) {
    const double x = static_cast<double>(i) - middle;
    sum_y += values[i];
    sum_xy += x * values[i];
    sum_xx += x * x;
  }
  const double slope = sum_xx > 0 ? sum_xy / sum_xx : 0;
  for (size_t i = 0; i < values.size(); ++i) values[i] -= sum_y / n + slope * (static_cast<double>(i) - middle);
}

// Neighbouring steps are not independent; means of parts are, nearly.
double standard_error(std::vector<double> values) {
  detrend(values);
  const size_t count = std::min(kBatches, values.size());
  double sum_squares = 0;
  for (size_t b = 0; b < count; ++b) {
    const size_t begin = b * values.size() / count, end = (b + 1) * values.size() / count;
    double sum = 0;
    for (size_t i = begin; i < end; ++i) sum += values[i];
    const double mean = sum / static_cast<double>(end - begin);
    sum_squares += mean * mean;
  }
  const auto n = static_cast<double>(count);
  return std::sqrt(sum_squares / (n - 1) / n);
}

std::optional<MeanLoss> mean_loss(const StepRecord& steps, double tokens, double window) {
  const auto& loss = steps.field("loss");
  std::vector<double> values;
  for (size_t i = 0; i < steps.size(); ++i)
    if (steps.tokens[i] > tokens - window && steps.tokens[i] <= tokens && std::isfinite(loss[i]))
      values.push_back(loss[i]);
  if (values.size() < kFewest) return std::nullopt;
  double sum = 0;
  for (const double value : values) sum += value;
  return MeanLoss{sum / static_cast<double>(values.size()), standard_error(values)};
}

std::optional<double> validation_loss(const StepRecord& steps, double tokens) {
  const auto& loss = steps.field("validation_loss");
  std::optional<double> last;
  for (size_t i = 0; i < steps.size() && steps.tokens[i] <= tokens; ++i)
    if (std::isfinite(loss[i])) last = loss[i];
  return last;
}

}  // namespace

std::vector<MatchedLosses> match_losses(const std::vector<RunRecord>& runs) {
  double common = INFINITY;
  for (const RunRecord& run : runs) {
    if (!std::isfinite(run.steps.tokens.back())) return {};
    common = std::min(common, run.steps.tokens.back());
  }
  std::vector<MatchedLosses> matched;
  for (const double share : {0.25, 0.5, 0.75, 1.0}) {
    MatchedLosses at{share * common, {}, {}};
    for (const RunRecord& run : runs) {
      at.runs.push_back(mean_loss(run.steps, at.tokens, kWindow * common));
      at.validation.push_back(validation_loss(run.steps, at.tokens));
    }
    matched.push_back(std::move(at));
  }
  return matched;
}

bool is_difference(const MeanLoss& a, const MeanLoss& b) {
  const double apart = std::abs(a.value - b.value);
  return apart > kLossNoise && apart > 2 * std::hypot(a.error, b.error);
}

}  // namespace athanor::inline report
