#include <cmath>

#include "verify/parts.h"
#include "verify/replay/replay.h"

namespace athanor::inline verify {
namespace {

/// LAMB, whose ratio of norms is of the whole parameter, or of each of its experts.
class LambReplay : public Replay {
 public:
  using Replay::Replay;

 private:
  void update(const ReplayedStep& step, double lr, const std::vector<Rounded>& grad) override;
  Rounded direction_of(size_t element, int64_t step, const Rounded& grad);
  std::vector<Rounded> exp_avg_, exp_avg_sq_;
};

// The direction m̂ / (√v̂ + eps) + decay · w. Terms of v are not negative, so that its error is relative to itself.
Rounded LambReplay::direction_of(size_t i, int64_t step, const Rounded& grad) {
  const double beta1 = config().betas[0], beta2 = config().betas[1], count = static_cast<double>(step);
  const double correction1 = 1 - std::pow(beta1, count), correction2 = 1 - std::pow(beta2, count);
  add_to_mean(beta1, grad, exp_avg_[i]);
  Rounded& v = exp_avg_sq_[i];
  const double square = grad.value * grad.value;
  // A square has twice the relative error of its gradient, 4 units; the factor 1 − beta2 and two products are rounded,
  // in the other term the factor and a product, and then the sum.
  v.error = beta2 * v.error + kUnit * (2 * beta2 * v.value + 7 * (1 - beta2) * square);
  v.value = beta2 * v.value + (1 - beta2) * square;
  v.error += kUnit * v.value;

  const double unbiased = std::sqrt(v.value / correction2), root = unbiased + config().eps;
  // In √v · (1 / √correction) the correction, its root, the quotient, the root of v and the product are rounded; then
  // eps and the sum.
  const double root_error =
      (v.value > 0 ? unbiased * v.error / (2 * v.value) : 0) + kUnit * (5 * unbiased + config().eps + root);
  const double mean = exp_avg_[i].value / correction1, quotient = mean / root, decay = weight_decay() * master_[i],
               direction = quotient + decay;
  // The correction, its reciprocal, the product and the quotient; decay and its product; the sum.
  const double error = exp_avg_[i].error / correction1 / root + std::abs(quotient) * (root_error / root + 4 * kUnit) +
                       weight_decay() * bound_[i] + kUnit * (2 * std::abs(decay) + std::abs(direction));
  return {direction, error};
}

void LambReplay::update(const ReplayedStep& step, double lr, const std::vector<Rounded>& grad) {
  exp_avg_.resize(grad.size()), exp_avg_sq_.resize(grad.size());
  for_parts(spec(), [&](const std::string&, int64_t begin, int64_t end) {
    std::vector<Rounded> directions;
    double weights = 0, weight_errors = 0, sizes = 0, errors = 0;  // sums of squares
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
      const Rounded d = directions.emplace_back(direction_of(i, step.number, grad[i]));
      weights += master_[i] * master_[i], weight_errors += bound_[i] * bound_[i];
      sizes += d.value * d.value, errors += d.error * d.error;
    }
    const bool has_ratio = weights > 0 && sizes > 0;
    const double ratio = has_ratio ? std::sqrt(weights / sizes) : 1;
    // Norms are off by the norms of their errors; the ratio is rounded, and so is its product with the rate.
    const double ratio_error =
        has_ratio ? std::sqrt(weight_errors / weights) + std::sqrt(errors / sizes) + 3 * kUnit : 0;
    for (size_t i = 0; i < directions.size(); ++i) {
      const auto& [direction, error] = directions[i];
      move(static_cast<size_t>(begin) + i, lr * ratio, 0, {direction, error + ratio_error * std::abs(direction)});
    }
  });
}

}  // namespace

std::unique_ptr<Replay> make_lamb_replay(const RunConfig& config, const ParameterSpec& spec,
                                         const std::vector<float>& master) {
  return std::make_unique<LambReplay>(config, spec, master);
}

}  // namespace athanor::inline verify
