#include <algorithm>
#include <cmath>

#include "verify/replay/replay.h"

namespace athanor::inline verify {
namespace {

/// Sophia-G, whose Hessian follows from the gradients of second backwards.
class SophiaReplay : public Replay {
 public:
  using Replay::Replay;

  std::span<const Rounded> hessian() const override { return hessian_; }

 private:
  void update(const ReplayedStep& step, double lr, const std::vector<Rounded>& grad) override;
  void learn_from_second(const ReplayedStep& step);
  Rounded direction_of(size_t element) const;
  std::vector<Rounded> exp_avg_, hessian_;
};

// h ← beta2 h + (1 − beta2) n g². The rounded beta2 is off by a unit of itself at most, which is also the error of the
// rest 1 − beta2, whose difference is rounded. In the one term the product with h is rounded, in the other n, three
// products; then the sum. Numbers below the normal ones may become zero.
void SophiaReplay::learn_from_second(const ReplayedStep& step) {
  constexpr double kFlushed = 0x1p-126;
  const double keep = config().betas[1], rest = 1 - keep, targets = static_cast<double>(step.targets);
  for (size_t i = 0; i < hessian_.size(); ++i) {
    Rounded& h = hessian_[i];
    const double g = i < step.drawn_grad.size() ? step.drawn_grad[i] : 0, square = targets * g * g;
    const double error = keep * h.error + kUnit * (2 * keep * h.value + (keep + 5 * rest) * square);
    h.value = keep * h.value + rest * square;
    h.error = error + kUnit * h.value + kFlushed;
  }
}

// m / (rho h + 1e-15). Below, rho, the product, the constant and the sum are rounded; the quotient is.
// Clipping takes an error to one of at most the same size, and to none where the step is clipped in any case.
Rounded SophiaReplay::direction_of(size_t i) const {
  constexpr double kNotZero = 1e-15;
  const auto& [mean, mean_error] = exp_avg_[i];
  const double curvature = config().rho * hessian_[i].value, below = curvature + kNotZero,
               below_error = config().rho * hessian_[i].error + kUnit * (2 * curvature + kNotZero + below);
  const double ratio = mean / below, error = mean_error / below + std::abs(ratio) * (below_error / below + kUnit);
  const bool surely_clipped = std::abs(ratio) - error > 1;
  return {std::clamp(ratio, -1.0, 1.0), surely_clipped ? 0 : std::min(error, 2.0)};
}

void SophiaReplay::update(const ReplayedStep& step, double lr, const std::vector<Rounded>& grad) {
  exp_avg_.resize(grad.size()), hessian_.resize(grad.size());
  if ((step.number - 1) % config().hessian_interval == 0) learn_from_second(step);
  for (size_t i = 0; i < grad.size(); ++i) {
    add_to_mean(config().betas[0], grad[i], exp_avg_[i]);
    move(i, lr, weight_decay(), direction_of(i));
  }
}

}  // namespace

std::unique_ptr<Replay> make_sophiag_replay(const RunConfig& config, const ParameterSpec& spec,
                                            const std::vector<float>& master) {
  return std::make_unique<SophiaReplay>(config, spec, master);
}

}  // namespace athanor::inline verify
