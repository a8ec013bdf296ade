#include <algorithm>
#include <cmath>

#include "train/verify/replay/optimizer_replays.h"

namespace athanor {

// The Hessian of the run is taken as it is. Of the quotient rho, the product, the sum and the quotient itself are
// rounded; clipping takes an error to one of at most the same size, and to none where the step is clipped in any case.
void SophiaReplay::update(const ReplayedStep& step, double lr, const std::vector<Rounded>& grad) {
  exp_avg_.resize(grad.size());
  for (size_t i = 0; i < grad.size(); ++i) {
    add_to_mean(config().betas[0], grad[i], exp_avg_[i]);
    const double hessian = i < step.hessian.size() ? step.hessian[i] : 0, below = config().rho * hessian + 1e-15,
                 ratio = exp_avg_[i].value / below, error = exp_avg_[i].error / below + 4 * kUnit * std::abs(ratio);
    const bool surely_clipped = std::abs(ratio) - error > 1;
    move(i, lr, weight_decay(), {std::clamp(ratio, -1.0, 1.0), surely_clipped ? 0 : std::min(error, 2.0)});
  }
}

}  // namespace athanor
