#include "kernels/adamw.h"

#include <cmath>

#include "kernels/master.h"

namespace athanor::kernels {
namespace {

// The order of operations is that of torch.optim.AdamW: decay, moments, then lr/bias1 · m / (sqrt(v)/sqrt(bias2) +
// eps).
struct Update {
  ATHANOR_INLINE explicit Update(const AdamwStep& s)
      : grad_scale(s.grad_scale), keep(1.0f - s.lr * s.weight_decay), step_size(s.lr / s.bias_correction1),
        beta2(static_cast<float>(s.beta2)), rest1(static_cast<float>(1 - s.beta1)),
        rest2(static_cast<float>(1 - s.beta2)), root_correction(std::sqrt(s.bias_correction2)), eps(s.eps) {}

  ATHANOR_INLINE float operator()(float master, float& exp_avg, float& exp_avg_sq, float& grad) const {
    const float g = grad * grad_scale;
    const float m = exp_avg + rest1 * (g - exp_avg);
    const float v = beta2 * exp_avg_sq + rest2 * g * g;
    exp_avg = m;
    exp_avg_sq = v;
    grad = 0;
    return master * keep - step_size * m / (std::sqrt(v) / root_correction + eps);
  }

  float grad_scale, keep, step_size, beta2, rest1, rest2, root_correction, eps;
};

// The count has 32 bits, as wide as the rest of the loop, over runs that cannot overflow it.
template <class F>
ATHANOR_INLINE int64_t count_in_runs(int64_t n, F changes) {
  constexpr int64_t kRun = int64_t{1} << 20;
  int64_t total = 0;
  for (int64_t begin = 0; begin < n; begin += kRun) {
    const int64_t end = begin + kRun < n ? begin + kRun : n;
    int32_t changed = 0;
    for (int64_t i = begin; i < end; ++i) changed += changes(i);
    total += changed;
  }
  return total;
}

ATHANOR_INLINE int64_t update_whole(const AdamwStep& s, float* __restrict master, float* __restrict exp_avg,
                                    float* __restrict exp_avg_sq, float* __restrict grad, int64_t n) {
  const Update update(s);
  return count_in_runs(n, [=](int64_t i) {
    const float before = master[i];
    master[i] = update(before, exp_avg[i], exp_avg_sq[i], grad[i]);
    return static_cast<int32_t>(master[i] != before);
  });
}

ATHANOR_INLINE int64_t update_split(const AdamwStep& s, Bf16* __restrict weight, uint16_t* __restrict low,
                                    float* __restrict exp_avg, float* __restrict exp_avg_sq, float* __restrict grad,
                                    int64_t n) {
  const Update update(s);
  return count_in_runs(n, [=](int64_t i) {
    const uint16_t before = weight[i].bits;
    split_master(update(join_master(weight[i], low[i]), exp_avg[i], exp_avg_sq[i], grad[i]), weight[i], low[i]);
    return static_cast<int32_t>(weight[i].bits != before);
  });
}

}  // namespace

ATHANOR_EACH_ISA int64_t adamw(const AdamwStep& step, float* master, float* exp_avg, float* exp_avg_sq, float* grad,
                               int64_t n) {
  return update_whole(step, master, exp_avg, exp_avg_sq, grad, n);
}

ATHANOR_EACH_ISA int64_t adamw(const AdamwStep& step, Bf16* weight, uint16_t* master_low, float* exp_avg,
                               float* exp_avg_sq, float* grad, int64_t n) {
  return update_split(step, weight, master_low, exp_avg, exp_avg_sq, grad, n);
}

ATHANOR_EACH_ISA double sum_of_squares(const float* x, int64_t n) {
  // A square of fp32 is exact in double, so only the additions round, and a norm is the same however it is cut.
  double lanes[kLanes] = {};
  const int64_t whole = n / kLanes * kLanes;
  for (int64_t begin = 0; begin < whole; begin += kLanes) {
    for (int64_t l = 0; l < kLanes; ++l) lanes[l] += double{x[begin + l]} * double{x[begin + l]};
  }
  for (int64_t i = whole; i < n; ++i) lanes[i - whole] += double{x[i]} * double{x[i]};
  for (int64_t half = kLanes / 2; half > 0; half /= 2) {
    for (int64_t l = 0; l < half; ++l) lanes[l] += lanes[l + half];
  }
  return lanes[0];
}

}  // namespace athanor::kernels
