#include "kernels/cuda/update.h"

#include <cmath>
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
  float keep;
  double factor;
  const float* rate;
  float* direction;

  template <int N>
  ATHANOR_INLINE int update(int64_t i, Pack<float, N>& masters, float /*grad_scale*/) const {
    const float size = static_cast<float>(factor * (rate ? static_cast<double>(*rate) : 1.0));
    const Pack<float, N> d = load_pack<N>(direction + i);
    for (int l = 0; l < N; ++l) masters.at[l] = masters.at[l] * keep - size * d.at[l];
    store_pack(direction + i, Pack<float, N>{});
    return 0;
  }
};

// Calls f with the form of the masters.
template <class F>
void with_form(const Masters& masters, F f) {
  masters.whole ? f(WholeMasters{masters.whole}) : f(SplitMasters{masters.weight, masters.low});
}

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

struct LambRule {
  explicit LambRule(const LambStep& s)
      : rest1(static_cast<float>(1 - s.beta1)), rest2(static_cast<float>(1 - s.beta2)),
        beta2(static_cast<float>(s.beta2)), unbias1(1.0f / s.bias_correction1),
        unbias2(1.0f / std::sqrt(s.bias_correction2)), eps(s.eps), decay(s.weight_decay) {}

  float rest1, rest2, beta2, unbias1, unbias2, eps, decay;

  ATHANOR_INLINE float operator()(float w, float& m, float& v, float g) const {
    m = m + rest1 * (g - m);
    v = beta2 * v + rest2 * g * g;
    return m * unbias1 / (std::sqrt(v) * unbias2 + eps) + decay * w;
  }
};

template <int N>
constexpr int64_t kLambRun = int64_t{kPacksOfThread} * kThreads* N;

// Directions, and partial sums of squares of each team's elements.
template <int N, class Form>
void find_directions(const Stream& stream, const LambRule& rule, const Form& masters, float* exp_avg, float* exp_avg_sq,
                     float* grad, int64_t n, double* partials, float scale, const float* scale_there) {
  const int64_t teams = (n + kLambRun<N> - 1) / kLambRun<N>;
  for_each_team<kThreads>(stream, "lamb", teams, [=] ATHANOR_BODY(const Team<kThreads>& team) {
    const int64_t begin = team.index() * kLambRun<N>, end = min_of(begin + kLambRun<N>, n);
    PerThread<double, kThreads> of_directions;
    auto* directions = &of_directions;
    const double weights = team.template sum<double>([=](int thread) {
      double mine = 0, moved = 0;
      const float grad_scale = scale_there ? *scale_there : scale;
      if (grad_scale != grad_scale) return mine;
      for (int64_t i = begin + thread * N; i < end; i += kThreads * N) {
        const Pack<float, N> w = masters.template load<N>(i);
        Pack<float, N> m = load_pack<N>(exp_avg + i), v = load_pack<N>(exp_avg_sq + i), g = load_pack<N>(grad + i);
        for (int l = 0; l < N; ++l) {
          const float u = rule(w.at[l], m.at[l], v.at[l], g.at[l] * grad_scale);
          g.at[l] = u;
          mine += static_cast<double>(w.at[l]) * w.at[l];
          moved += static_cast<double>(u) * u;
        }
        store_pack(exp_avg + i, m);
        store_pack(exp_avg_sq + i, v);
        store_pack(grad + i, g);
      }
      directions->of(thread) = moved;
      return mine;
    });
    const double moved = team.template sum<double>([=](int thread) { return directions->of(thread); });
    team.each([=](int thread) {
      if (thread == 0) partials[2 * team.index()] = weights, partials[2 * team.index() + 1] = moved;
    });
  });
}

void add_partials(const Stream& stream, const double* partials, int64_t teams, double* squares) {
  for_each_team<kThreads>(stream, "lamb: total", 1, [=] ATHANOR_BODY(const Team<kThreads>& team) {
    for (int64_t kind = 0; kind < 2; ++kind) {
      const double sum = team.template sum<double>([=](int thread) {
        double mine = 0;
        for (int64_t i = thread; i < teams; i += kThreads) mine += partials[2 * i + kind];
        return mine;
      });
      team.each([=](int thread) {
        if (thread == 0) squares[kind] += sum;
      });
    }
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

void subtract(const Stream& stream, float keep, double factor, const float* rate, const Masters& masters,
              float* direction, int64_t n, int64_t* changed, const float* grad_scale) {
  update(stream, "subtract", masters, SubtractRule{keep, factor, rate, direction}, n, 1, grad_scale, changed, nullptr,
         direction);
}

int64_t lamb_partials(int64_t n) { return 2 * ((n + kLambRun<1> - 1) / kLambRun<1>); }

void lamb_direction(const Stream& stream, const LambStep& step, const Masters& masters, float* exp_avg,
                    float* exp_avg_sq, float* grad, int64_t n, double* partials, double* squares,
                    const float* grad_scale) {
  const LambRule rule(step);
  with_form(masters, [&](const auto& form) {
    const bool packs = form.can_pack_with(n, exp_avg, exp_avg_sq, grad);
    const auto find = packs ? &find_directions<kPack<float>, std::decay_t<decltype(form)>>
                            : &find_directions<1, std::decay_t<decltype(form)>>;
    find(stream, rule, form, exp_avg, exp_avg_sq, grad, n, partials, step.grad_scale, grad_scale);
    const int64_t run = packs ? kLambRun<kPack<float>> : kLambRun<1>;
    add_partials(stream, partials, (n + run - 1) / run, squares);
  });
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
