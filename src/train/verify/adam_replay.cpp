#include "train/verify/adam_replay.h"

#include <algorithm>
#include <cmath>

#include "layout/width_groups.h"

namespace athanor {
namespace {

constexpr double kUnit = 0x1p-24;
// The roundings of an update: its five products and quotients, two roots and their operands, the rounded rates and
// corrections.
constexpr double kRoundings = 16;

}  // namespace

AdamReplay::AdamReplay(const RunConfig& config, const ParameterSpec& spec, const std::vector<float>& master)
    : config_(config.optimizer), master_(master.begin(), master.end()), exp_avg_(master.size()),
      exp_avg_sq_(master.size()), bound_(master.size()) {
  const ParameterGroup group =
      group_of(scaled_by_width(parameter_groups(config.optimizer), config), spec.name, spec.role);
  lr_scale_ = group.lr_scale;
  config_.weight_decay = group.weight_decay;
}

// Small runs have no warm-up, in which clipping might be off.
void AdamReplay::add_step(int64_t step, double step_lr, double grad_norm, const std::vector<float>& grad) {
  const double lr = step_lr * lr_scale_;
  const double scale = config_.max_grad_norm > 0 ? std::min(1.0, config_.max_grad_norm / (grad_norm + 1e-6)) : 1;
  const double beta1 = config_.betas[0], beta2 = config_.betas[1], count = static_cast<double>(step);
  const double correction1 = 1 - std::pow(beta1, count), correction2 = 1 - std::pow(beta2, count);
  for (size_t i = 0; i < std::min(grad.size(), master_.size()); ++i) {
    const double g = grad[i] * scale;
    exp_avg_[i] += (1 - beta1) * (g - exp_avg_[i]);
    exp_avg_sq_[i] += (1 - beta2) * (g * g - exp_avg_sq_[i]);
    const double root = std::sqrt(exp_avg_sq_[i] / correction2) + config_.eps;
    const double update = lr * exp_avg_[i] / correction1 / root;
    master_[i] = master_[i] * (1 - lr * config_.weight_decay) - update;
    // A weight is rounded after decay and after the update, and a master in halves moves by one bit (kernels/master.h).
    // The mean's terms may cancel, so its error is that of terms as large as the root, lr each.
    bound_[i] += kUnit * (4 * std::abs(master_[i]) + kRoundings * (std::abs(update) + lr));
  }
}

}  // namespace athanor
