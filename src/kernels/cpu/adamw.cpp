#include "kernels/adamw.h"

#include <cmath>

namespace athanor::kernels {
namespace {

// The order of operations is torch.optim.AdamW's: decay, moments, then lr/bias1 · m / (sqrt(v)/sqrt(bias2) + eps).
template <bool kHasWeight>
ATHANOR_INLINE int64_t update(const AdamwStep& s, float* __restrict master, float* __restrict exp_avg,
                              float* __restrict exp_avg_sq, float* __restrict grad, Bf16* __restrict weight,
                              int64_t n) {
  const float keep = 1.0f - s.lr * s.weight_decay;
  const float step_size = s.lr / s.bias_correction1;
  const auto beta2 = static_cast<float>(s.beta2);
  const auto rest1 = static_cast<float>(1 - s.beta1), rest2 = static_cast<float>(1 - s.beta2);
  const float root_correction = std::sqrt(s.bias_correction2);
  int64_t changed = 0;
  for (int64_t i = 0; i < n; ++i) {
    const float g = grad[i] * s.grad_scale;
    const float m = exp_avg[i] + rest1 * (g - exp_avg[i]);
    const float v = beta2 * exp_avg_sq[i] + rest2 * g * g;
    const float updated = master[i] * keep - step_size * m / (std::sqrt(v) / root_correction + s.eps);
    if constexpr (kHasWeight) {
      const uint16_t rounded = bf16_from_float(updated);
      changed += rounded != weight[i].bits;
      weight[i].bits = rounded;
    } else {
      changed += updated != master[i];
    }
    exp_avg[i] = m;
    exp_avg_sq[i] = v;
    master[i] = updated;
    grad[i] = 0;
  }
  return changed;
}

}  // namespace

ATHANOR_EACH_ISA int64_t adamw(const AdamwStep& step, float* master, float* exp_avg, float* exp_avg_sq, float* grad,
                               Bf16* weight, int64_t n) {
  if (weight) return update<true>(step, master, exp_avg, exp_avg_sq, grad, weight, n);
  return update<false>(step, master, exp_avg, exp_avg_sq, grad, nullptr, n);
}

ATHANOR_EACH_ISA double sum_of_squares(const float* x, int64_t n) {
  // fp32 within short runs, double between them: a run of 4,096 loses at most 4096/16 · 2^-24 of itself.
  constexpr int64_t kRun = 4096;
  double total = 0;
  for (int64_t begin = 0; begin < n; begin += kRun) {
    const float* run = x + begin;
    total += sum_over(begin + kRun < n ? kRun : n - begin, [run](int64_t i) { return run[i] * run[i]; });
  }
  return total;
}

}  // namespace athanor::kernels
