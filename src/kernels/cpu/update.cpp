#include "kernels/update.h"

#include <cmath>

#include "kernels/master.h"

namespace athanor::kernels {
namespace {

// Calls f(i, master) for each element and stores the master that it returns. Returns how many weights changed. The
// counts have 32 bits, as wide as the rest of the loop, over runs that cannot overflow them.
template <class F>
ATHANOR_INLINE int64_t update_each(const Masters& masters, int64_t n, F f) {
  constexpr int64_t kRun = int64_t{1} << 20;
  int64_t total = 0;
  for (int64_t begin = 0; begin < n; begin += kRun) {
    const int64_t end = begin + kRun < n ? begin + kRun : n;
    int32_t changed = 0;
    if (float* __restrict whole = masters.whole) {
#pragma GCC ivdep
      for (int64_t i = begin; i < end; ++i) {
        const float before = whole[i];
        whole[i] = f(i, before);
        changed += static_cast<int32_t>(whole[i] != before);
      }
    } else {
      Bf16* __restrict weight = masters.weight;
      uint16_t* __restrict low = masters.low;
#pragma GCC ivdep
      for (int64_t i = begin; i < end; ++i) {
        const uint16_t before = weight[i].bits;
        split_master(f(i, join_master(weight[i], low[i])), weight[i], low[i]);
        changed += static_cast<int32_t>(weight[i].bits != before);
      }
    }
    total += changed;
  }
  return total;
}

// The sums of squares of two streams, in the order of sum_of_squares (adamw.h).
struct SquareLanes {
  double weights[kLanes] = {}, directions[kLanes] = {};

  ATHANOR_INLINE void add(const float* w, const float* u, int64_t n) {
    for (int64_t l = 0; l < n; ++l) {
      weights[l] += double{w[l]} * double{w[l]};
      directions[l] += double{u[l]} * double{u[l]};
    }
  }
  ATHANOR_INLINE LambSums total() {
    for (int64_t half = kLanes / 2; half > 0; half /= 2) {
      for (int64_t l = 0; l < half; ++l) weights[l] += weights[l + half], directions[l] += directions[l + half];
    }
    return {weights[0], directions[0]};
  }
};

// What reads a master. With lambdas in their place g++ 12 makes the loop of `directions` a quarter slower.
struct WholeMaster {
  const float* whole;
  ATHANOR_INLINE float operator()(int64_t i) const { return whole[i]; }
};
struct SplitMaster {
  const Bf16* weight;
  const uint16_t* low;
  ATHANOR_INLINE float operator()(int64_t i) const { return join_master(weight[i], low[i]); }
};

// Replaces gradients by directions. Their squares are added at once, while the next elements come from memory.
template <class Master>
ATHANOR_INLINE LambSums directions(const LambStep& step, Master master, float* __restrict exp_avg,
                                   float* __restrict exp_avg_sq, float* __restrict grad, int64_t n) {
  constexpr int64_t kBlock = 1024;  // elements of one sum in the lanes
  const LambStep s = step;          // stores of floats could change what a reference refers to
  const float rest1 = static_cast<float>(1 - s.beta1), rest2 = static_cast<float>(1 - s.beta2),
              beta2 = static_cast<float>(s.beta2), unbias1 = 1.0f / s.bias_correction1,
              unbias2 = 1.0f / std::sqrt(s.bias_correction2);
  LambSums sums;
  SquareLanes lanes;
  const auto add = [&](int64_t begin, int64_t size) __attribute__((always_inline)) {
    float w[kLanes], u[kLanes];
    for (int64_t l = 0; l < size; ++l) {
      const int64_t i = begin + l;
      w[l] = master(i);
      const float g = grad[i] * s.grad_scale, m = exp_avg[i] + rest1 * (g - exp_avg[i]);
      const float v = beta2 * exp_avg_sq[i] + rest2 * g * g;
      exp_avg[i] = m;
      exp_avg_sq[i] = v;
      grad[i] = u[l] = m * unbias1 / (std::sqrt(v) * unbias2 + s.eps) + s.weight_decay * w[l];
    }
    lanes.add(w, u, size);
  };
  for (int64_t block = 0; block < n; block += kBlock) {
    const int64_t end = kBlock < n - block ? block + kBlock : n, whole = block + (end - block) / kLanes * kLanes;
    lanes = {};
    for (int64_t i = block; i < whole; i += kLanes) add(i, kLanes);
    if (whole < end) add(whole, end - whole);
    const LambSums more = lanes.total();
    sums.weights += more.weights;
    sums.directions += more.directions;
  }
  return sums;
}

}  // namespace

ATHANOR_EACH_ISA int64_t sgd(const SgdStep& s, const Masters& masters, float* momentum, float* grad, int64_t n) {
  const float keep = 1.0f - s.lr * s.weight_decay;
  return update_each(masters, n, [=](int64_t i, float master) {
    const float g = grad[i] * s.grad_scale, m = s.momentum * momentum[i] + g;
    momentum[i] = m;
    grad[i] = 0;
    return master * keep - s.lr * (s.nesterov ? g + s.momentum * m : m);
  });
}

ATHANOR_EACH_ISA LambSums lamb_direction(const LambStep& step, const Masters& masters, float* exp_avg,
                                         float* exp_avg_sq, float* grad, int64_t n) {
  if (masters.whole) return directions(step, WholeMaster{masters.whole}, exp_avg, exp_avg_sq, grad, n);
  return directions(step, SplitMaster{masters.weight, masters.low}, exp_avg, exp_avg_sq, grad, n);
}

ATHANOR_EACH_ISA SophiaCounts sophia(const SophiaStep& step_rule, const Masters& masters, float* exp_avg,
                                     const float* hessian, float* grad, int64_t n) {
  const SophiaStep s = step_rule;  // stores of floats could change what a reference refers to
  const float keep = 1.0f - s.lr * s.weight_decay, rest1 = 1.0f - s.beta1;
  SophiaCounts counts;
  constexpr int64_t kRun = int64_t{1} << 20;  // as in update_each
  for (int64_t begin = 0; begin < n; begin += kRun) {
    const int64_t size = kRun < n - begin ? kRun : n - begin;
    float* __restrict m = exp_avg + begin, * __restrict g = grad + begin;
    const float* __restrict h = hessian + begin;
    int32_t clipped = 0;
    counts.changed += update_each(masters.at(begin), size, [=, &clipped](int64_t i, float master) {
      m[i] = m[i] + rest1 * (g[i] * s.grad_scale - m[i]);
      g[i] = 0;
      const float ratio = m[i] / (s.rho * h[i] + 1e-15f);
      const float step = ratio > 1.0f ? 1.0f : ratio < -1.0f ? -1.0f : ratio;
      clipped += static_cast<int32_t>(step != ratio);
      return master * keep - s.lr * step;
    });
    counts.clipped += clipped;
  }
  return counts;
}

ATHANOR_EACH_ISA void add_squares(float beta, float tokens, const float* grad, float* hessian, int64_t n) {
  const float rest = 1.0f - beta;
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) hessian[i] = beta * hessian[i] + rest * ((tokens * grad[i]) * grad[i]);
}

ATHANOR_EACH_ISA void momentum_direction(const MomentumStep& step, float* momentum, float* grad, int64_t n) {
  const MomentumStep s = step;  // stores of floats could change what a reference refers to
  const float rest = 1.0f - s.momentum;
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    const float g = grad[i] * s.grad_scale, m = momentum[i] + rest * (g - momentum[i]);
    momentum[i] = m;
    grad[i] = s.nesterov ? g + s.momentum * (m - g) : m;
  }
}

ATHANOR_EACH_ISA int64_t subtract(float keep, float rate, const Masters& masters, float* direction, int64_t n) {
  return update_each(masters, n, [=](int64_t i, float master) {
    const float step = direction[i];
    direction[i] = 0;
    return master * keep - rate * step;
  });
}

}  // namespace athanor::kernels
