#include "kernels/cuda/update.h"

#include <type_traits>

#include "kernels/cuda/master_packs.h"

namespace athanor::kernels::cuda {
namespace {

// The order of operations is that of kernels/cpu/update.cpp.
struct SgdRule {
  SgdStep step;
  float *momentum, *grad;

  template <int N>
  ATHANOR_INLINE int update(int64_t i, Pack<float, N>& masters, float grad_scale) const {
    const float keep = 1.0f - step.lr * step.weight_decay;
    Pack<float, N> m = load_pack<N>(momentum + i);
    const Pack<float, N> gradient = load_pack<N>(grad + i);
    for (int l = 0; l < N; ++l) {
      const float g = gradient.at[l] * grad_scale;
      m.at[l] = step.momentum * m.at[l] + g;
      masters.at[l] = masters.at[l] * keep - step.lr * (step.nesterov ? g + step.momentum * m.at[l] : m.at[l]);
    }
    store_pack(momentum + i, m);
    store_pack(grad + i, Pack<float, N>{});
    return 0;
  }
};

struct SophiaRule {
  SophiaStep step;
  float* exp_avg;
  const float* hessian;
  float* grad;

  template <int N>
  ATHANOR_INLINE int update(int64_t i, Pack<float, N>& masters, float grad_scale) const {
    const float keep = 1.0f - step.lr * step.weight_decay, rest1 = 1.0f - step.beta1;
    Pack<float, N> m = load_pack<N>(exp_avg + i);
    const Pack<float, N> gradient = load_pack<N>(grad + i), h = load_pack<N>(hessian + i);
    int clipped = 0;
    for (int l = 0; l < N; ++l) {
      m.at[l] = m.at[l] + rest1 * (gradient.at[l] * grad_scale - m.at[l]);
      const float ratio = m.at[l] / (step.rho * h.at[l] + 1e-15f);
      const float move = ratio > 1.0f ? 1.0f : ratio < -1.0f ? -1.0f : ratio;
      clipped += move != ratio ? 1 : 0;
      masters.at[l] = masters.at[l] * keep - step.lr * move;
    }
    store_pack(exp_avg + i, m);
    store_pack(grad + i, Pack<float, N>{});
    return clipped;
  }
};

struct SubtractRule {
  float keep, rate;
  float* direction;

  template <int N>
  ATHANOR_INLINE int update(int64_t i, Pack<float, N>& masters, float /*grad_scale*/) const {
    const Pack<float, N> d = load_pack<N>(direction + i);
    for (int l = 0; l < N; ++l) masters.at[l] = masters.at[l] * keep - rate * d.at[l];
    store_pack(direction + i, Pack<float, N>{});
    return 0;
  }
};

template <class Rule, class... Pointers>
void update(const Stream& stream, const char* name, const Masters& masters, const Rule& rule, int64_t n, float scale,
            const float* scale_there, int64_t* changed, int64_t* counted, Pointers... pointers) {
  with_form(masters, [&](const auto& form) {
    using Form = std::decay_t<decltype(form)>;
    const auto run =
        form.can_pack_with(n, pointers...) ? &update_packs<kPack<float>, Form, Rule> : &update_packs<1, Form, Rule>;
    run(stream, name, form, rule, n, scale, scale_there, changed, counted);
  });
}

}  // namespace

void sgd(const Stream& stream, const SgdStep& step, const Masters& masters, float* momentum, float* grad, int64_t n,
         int64_t* changed, const float* grad_scale) {
  update(stream, "sgd", masters, SgdRule{step, momentum, grad}, n, step.grad_scale, grad_scale, changed, nullptr,
         momentum, grad);
}

void sophia(const Stream& stream, const SophiaStep& step, const Masters& masters, float* exp_avg, const float* hessian,
            float* grad, int64_t n, int64_t* changed, int64_t* clipped, const float* grad_scale) {
  update(stream, "sophia", masters, SophiaRule{step, exp_avg, hessian, grad}, n, step.grad_scale, grad_scale, changed,
         clipped, exp_avg, hessian, grad);
}

void subtract(const Stream& stream, float keep, float rate, const Masters& masters, float* direction, int64_t n,
              int64_t* changed, const float* grad_scale) {
  update(stream, "subtract", masters, SubtractRule{keep, rate, direction}, n, 1, grad_scale, changed, nullptr,
         direction);
}

void momentum_direction(const Stream& stream, const MomentumStep& step, float* momentum, float* grad, int64_t n,
                        const float* grad_scale) {
  for_each_index(stream, "momentum", n, [=] ATHANOR_BODY(int64_t i) {
    const float scale = grad_scale ? *grad_scale : step.grad_scale;
    if (scale != scale) return;
    const float g = grad[i] * scale, m = momentum[i] + (1.0f - step.momentum) * (g - momentum[i]);
    momentum[i] = m;
    grad[i] = step.nesterov ? g + step.momentum * (m - g) : m;
  });
}

void add_squares(const Stream& stream, float beta, float tokens, const float* grad, float* hessian, int64_t n) {
  for_each_index(stream, "squares", n, [=] ATHANOR_BODY(int64_t i) {
    hessian[i] = beta * hessian[i] + (1.0f - beta) * ((tokens * grad[i]) * grad[i]);
  });
}

}  // namespace athanor::kernels::cuda
