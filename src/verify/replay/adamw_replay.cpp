#include <cmath>

#include "verify/replay/replay.h"

namespace athanor::inline verify {
namespace {

/// AdamW. Its bound counts roundings instead of following them.
class AdamwReplay : public Replay {
 public:
  using Replay::Replay;

 private:
  void update(const ReplayedStep& step, double lr, const std::vector<Rounded>& grad) override;
  std::vector<double> exp_avg_, exp_avg_sq_;
};

// The roundings of an update: its five products and quotients, two roots and their operands, the rounded rates and
// corrections.
constexpr double kRoundings = 16;

void AdamwReplay::update(const ReplayedStep& step, double lr, const std::vector<Rounded>& grad) {
  const double beta1 = config().betas[0], beta2 = config().betas[1], count = static_cast<double>(step.number);
  const double correction1 = 1 - std::pow(beta1, count), correction2 = 1 - std::pow(beta2, count);
  exp_avg_.resize(grad.size()), exp_avg_sq_.resize(grad.size());
  for (size_t i = 0; i < grad.size(); ++i) {
    const double g = grad[i].value;
    exp_avg_[i] += (1 - beta1) * (g - exp_avg_[i]);
    exp_avg_sq_[i] += (1 - beta2) * (g * g - exp_avg_sq_[i]);
    const double root = std::sqrt(exp_avg_sq_[i] / correction2) + config().eps;
    const double moved = lr * exp_avg_[i] / correction1 / root;
    master_[i] = master_[i] * (1 - lr * weight_decay()) - moved;
    // A weight is rounded after decay and after the update, and a master in halves moves by one bit (kernels/master.h).
    // The mean's terms may cancel, so its error is that of terms as large as the root, lr each.
    bound_[i] += kUnit * (4 * std::abs(master_[i]) + kRoundings * (std::abs(moved) + lr));
  }
}

}  // namespace

std::unique_ptr<Replay> make_adamw_replay(const RunConfig& config, const ParameterSpec& spec,
                                          const std::vector<float>& master) {
  return std::make_unique<AdamwReplay>(config, spec, master);
}

}  // namespace athanor::inline verify
