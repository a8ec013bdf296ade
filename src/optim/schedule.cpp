#include "optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace athanor {

double learning_rate(const OptimizerConfig& c, int64_t step, int64_t total_steps) {
  if (step <= c.warmup_steps) return c.lr * static_cast<double>(step) / static_cast<double>(c.warmup_steps);
  const auto since = static_cast<double>(step - c.warmup_steps);
  const auto span = static_cast<double>(std::max<int64_t>(total_steps - c.warmup_steps, 1));
  const double progress = std::min(1.0, since / span), range = c.lr - c.min_lr;
  if (c.schedule == "cosine") return c.min_lr + 0.5 * range * (1 + std::cos(std::numbers::pi * progress));
  if (c.schedule == "linear") return c.lr - range * progress;
  if (c.schedule == "inverse_sqrt") {
    const auto warmup = static_cast<double>(std::max<int64_t>(c.warmup_steps, 1));
    return std::max(c.min_lr, c.lr * std::sqrt(warmup / static_cast<double>(step)));
  }
  if (c.schedule == "wsd") {  // warm-up, stable, decay
    const int64_t decay_steps = c.decay_steps > 0 ? c.decay_steps : std::max<int64_t>(total_steps / 10, 1);
    const int64_t left = std::max<int64_t>(total_steps - step, 0);
    return left >= decay_steps ? c.lr : c.min_lr + range * static_cast<double>(left) / static_cast<double>(decay_steps);
  }
  return c.lr;  // constant
}

}  // namespace athanor
