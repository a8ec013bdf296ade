#include "kernels/update.h"

#include <cmath>
#include <cstring>
#include <utility>

#include "kernels/master.h"

namespace athanor::kernels {
namespace {

constexpr int64_t kRun = int64_t{1} << 20;  // elements that are counted in 32 bits, as wide as the rest of the loop

// Calls f(i, master) for each element and stores the master that it returns. Returns how many weights changed.
template <class F>
ATHANOR_INLINE int64_t update_each(const Masters& masters, int64_t n, F f) {
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

template <class Rule, size_t... K>
ATHANOR_INLINE int64_t update_by(const Rule rule, const Masters& masters, const RuleStates<Rule> states, float* grad,
                                 float grad_scale, int64_t n, int& clipped, std::index_sequence<K...> /*states*/) {
  return update_each(masters, n, [=, &clipped](int64_t i, float master) {
    const float g = kTakesDirection<Rule> ? grad[i] : grad[i] * grad_scale;
    grad[i] = 0;
    return rule(master, g, CountedClip{clipped}, states.at[K][i]...);
  });
}

constexpr int64_t kLambBlock = 1024;  // elements of one sum in the lanes

// A value of each lane. Of the same in plain loops the compiler makes vectors or not, by details such as a lambda.
typedef float Floats __attribute__((vector_size(kLanes * sizeof(float))));
typedef double Doubles __attribute__((vector_size(kLanes * sizeof(double))));

struct LambRule {
  float rest1, rest2, beta2, unbias1, unbias2, eps, decay, grad_scale;
};

// Replaces the gradients of kLanes elements by directions, and adds squares to the sums of lanes.
ATHANOR_INLINE void lamb_lanes(const LambRule& s, const float* __restrict master, float* __restrict exp_avg,
                               float* __restrict exp_avg_sq, float* __restrict grad, Doubles& weights,
                               Doubles& directions) {
  Floats w, g, m, v, root;
  std::memcpy(&w, master, sizeof(w)), std::memcpy(&g, grad, sizeof(g));
  std::memcpy(&m, exp_avg, sizeof(m)), std::memcpy(&v, exp_avg_sq, sizeof(v));
  g *= s.grad_scale;
  m += s.rest1 * (g - m);
  v = s.beta2 * v + s.rest2 * g * g;
  for (int l = 0; l < kLanes; ++l) root[l] = std::sqrt(v[l]);
  const Floats u = m * s.unbias1 / (root * s.unbias2 + s.eps) + s.decay * w;
  std::memcpy(exp_avg, &m, sizeof(m)), std::memcpy(exp_avg_sq, &v, sizeof(v)), std::memcpy(grad, &u, sizeof(u));
  const Doubles dw = __builtin_convertvector(w, Doubles), du = __builtin_convertvector(u, Doubles);
  weights += dw * dw;
  directions += du * du;
}

ATHANOR_INLINE double total(Doubles& lanes) {
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int l = 0; l < half; ++l) lanes[l] += lanes[l + half];
  }
  return lanes[0];
}

// The sums of squares of a block are in the order of sum_of_squares (adamw.h).
ATHANOR_INLINE LambSums directions(const LambRule& rule, const float* master, float* exp_avg, float* exp_avg_sq,
                                   float* grad, int64_t n) {
  Doubles weights = {}, moved = {};
  const int64_t whole = n / kLanes * kLanes;
  for (int64_t i = 0; i < whole; i += kLanes)
    lamb_lanes(rule, master + i, exp_avg + i, exp_avg_sq + i, grad + i, weights, moved);
  if (whole < n) {
    float w[kLanes] = {}, m[kLanes] = {}, v[kLanes], g[kLanes] = {};
    for (float& x : v) x = 1;  // lanes without an element have the direction 0: eps and beta2 are not both 0
    const auto rest = static_cast<size_t>(n - whole) * sizeof(float);
    std::memcpy(w, master + whole, rest), std::memcpy(m, exp_avg + whole, rest);
    std::memcpy(v, exp_avg_sq + whole, rest), std::memcpy(g, grad + whole, rest);
    lamb_lanes(rule, w, m, v, g, weights, moved);
    std::memcpy(exp_avg + whole, m, rest), std::memcpy(exp_avg_sq + whole, v, rest), std::memcpy(grad + whole, g, rest);
  }
  return {total(weights), total(moved)};
}

}  // namespace

template <class Rule>
ATHANOR_EACH_ISA UpdateCounts update(const Rule& rule, const Masters& masters, const RuleStates<Rule>& states,
                                     float* grad, float grad_scale, int64_t n) {
  UpdateCounts counts;
  for (int64_t begin = 0; begin < n; begin += kRun) {
    const int64_t size = kRun < n - begin ? kRun : n - begin;
    int clipped = 0;
    counts.changed += update_by(rule, masters.at(begin), states.from(begin), grad + begin, grad_scale, size, clipped,
                                std::make_index_sequence<Rule::kStates>());
    counts.clipped += clipped;
  }
  return counts;
}
#define ATHANOR_UPDATE(Rule) \
  template UpdateCounts update<Rule>(const Rule&, const Masters&, const RuleStates<Rule>&, float*, float, int64_t);
ATHANOR_FOR_EACH_UPDATE_RULE(ATHANOR_UPDATE)
#undef ATHANOR_UPDATE

ATHANOR_EACH_ISA LambSums lamb_direction(const LambStep& step, const Masters& masters, float* exp_avg,
                                         float* exp_avg_sq, float* grad, int64_t n) {
  const LambRule rule{static_cast<float>(1 - step.beta1),
                      static_cast<float>(1 - step.beta2),
                      static_cast<float>(step.beta2),
                      1.0f / step.bias_correction1,
                      1.0f / std::sqrt(step.bias_correction2),
                      step.eps,
                      step.weight_decay,
                      step.grad_scale};
  LambSums sums;
  for (int64_t begin = 0; begin < n; begin += kLambBlock) {
    const int64_t size = kLambBlock < n - begin ? kLambBlock : n - begin;
    const Masters block = masters.at(begin);
    float joined[kLambBlock];  // split masters
    if (!block.whole) {
      for (int64_t i = 0; i < size; ++i) joined[i] = join_master(block.weight[i], block.low[i]);
    }
    const LambSums more =
        directions(rule, block.whole ? block.whole : joined, exp_avg + begin, exp_avg_sq + begin, grad + begin, size);
    sums.weights += more.weights;
    sums.directions += more.directions;
  }
  return sums;
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

}  // namespace athanor::kernels
