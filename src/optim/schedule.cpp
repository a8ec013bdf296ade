#include "optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace athanor::inline optim {
namespace {

// The lengths of a schedule, and where it is, in one unit: steps or tokens. Both are exact in doubles.
struct Lengths {
  double at, warmup, decay, whole;
};

Lengths lengths_of(const OptimizerConfig& c, SchedulePoint at, int64_t phase_steps) {
  const auto real = [](int64_t steps) { return static_cast<double>(steps); };
  if (c.schedule_tokens > 0) return {real(at.tokens), c.warmup_tokens, c.decay_tokens, c.schedule_tokens};
  return {real(at.step), real(c.warmup_steps), real(c.decay_steps),
          real(c.schedule_steps > 0 ? c.schedule_steps : phase_steps)};
}

}  // namespace

double learning_rate(const OptimizerConfig& c, SchedulePoint point, int64_t phase_steps) {
  const auto [at, warmup, decay, whole] = lengths_of(c, point, phase_steps);
  if (at <= warmup) return c.lr * at / warmup;
  const double span = std::max(whole - warmup, 1.0), progress = std::min(1.0, (at - warmup) / span),
               range = c.lr - c.min_lr;
  switch (c.schedule) {
    case LrSchedule::kCosine: return c.min_lr + 0.5 * range * (1 + std::cos(std::numbers::pi * progress));
    case LrSchedule::kLinear: return c.lr - range * progress;
    case LrSchedule::kInverseSqrt: return std::max(c.min_lr, c.lr * std::sqrt(std::max(warmup, 1.0) / at));
    case LrSchedule::kConstant: return c.lr;
    case LrSchedule::kWsd: break;  // warm-up, stable, decay
  }
  const double last = decay > 0 ? decay : std::max(std::floor(whole / 10), 1.0), left = std::max(whole - at, 0.0);
  return left >= last ? c.lr : c.min_lr + range * left / last;
}

bool is_warming_up(const OptimizerConfig& c, SchedulePoint point) {
  const Lengths lengths = lengths_of(c, point, 0);
  return lengths.at <= lengths.warmup;
}

}  // namespace athanor::inline optim
