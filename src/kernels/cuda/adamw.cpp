#include "kernels/cuda/adamw.h"

#include <cmath>

#include "kernels/cuda/master_packs.h"

namespace athanor::kernels::cuda {
namespace {

// The order of operations is that of kernels/cpu/adamw.cpp.
struct AdamwRule {
  AdamwRule(const AdamwStep& s, float* m, float* v, float* g)
      : keep(1.0f - s.lr * s.weight_decay), step_size(s.lr / s.bias_correction1), beta2(static_cast<float>(s.beta2)),
        rest1(static_cast<float>(1 - s.beta1)), rest2(static_cast<float>(1 - s.beta2)),
        root_correction(std::sqrt(s.bias_correction2)), eps(s.eps), exp_avg(m), exp_avg_sq(v), grad(g) {}

  template <int N>
  ATHANOR_INLINE int update(int64_t i, Pack<float, N>& masters, float grad_scale) const {
    Pack<float, N> m = load_pack<N>(exp_avg + i), v = load_pack<N>(exp_avg_sq + i);
    const Pack<float, N> gradient = load_pack<N>(grad + i);
    for (int l = 0; l < N; ++l) {
      const float g = gradient.at[l] * grad_scale;
      m.at[l] = m.at[l] + rest1 * (g - m.at[l]);
      v.at[l] = beta2 * v.at[l] + rest2 * g * g;
      masters.at[l] = masters.at[l] * keep - step_size * m.at[l] / (std::sqrt(v.at[l]) / root_correction + eps);
    }
    store_pack(exp_avg + i, m);
    store_pack(exp_avg_sq + i, v);
    store_pack(grad + i, Pack<float, N>{});
    return 0;
  }

  float keep, step_size, beta2, rest1, rest2, root_correction, eps;
  float *exp_avg, *exp_avg_sq, *grad;
};

constexpr int64_t kSumRun = int64_t{1} << 16;  // elements of one partial sum of squares

template <class Form>
void step_masters(const Stream& stream, const AdamwStep& step, const Form& masters, float* exp_avg, float* exp_avg_sq,
                  float* grad, int64_t n, int64_t* changed, const float* grad_scale) {
  const AdamwRule rule(step, exp_avg, exp_avg_sq, grad);
  const bool packs = masters.can_pack_with(n, exp_avg, exp_avg_sq, grad);
  const auto run = packs ? &update_packs<kPack<float>, Form, AdamwRule> : &update_packs<1, Form, AdamwRule>;
  run(stream, "adamw", masters, rule, n, step.grad_scale, grad_scale, changed, nullptr);
}

}  // namespace

void adamw(const Stream& stream, const AdamwStep& step, float* master, float* exp_avg, float* exp_avg_sq, float* grad,
           int64_t n, int64_t* changed, const float* grad_scale) {
  step_masters(stream, step, WholeMasters{master}, exp_avg, exp_avg_sq, grad, n, changed, grad_scale);
}

void adamw(const Stream& stream, const AdamwStep& step, Bf16* weight, uint16_t* master_low, float* exp_avg,
           float* exp_avg_sq, float* grad, int64_t n, int64_t* changed, const float* grad_scale) {
  step_masters(stream, step, SplitMasters{weight, master_low}, exp_avg, exp_avg_sq, grad, n, changed, grad_scale);
}

int64_t sum_of_squares_partials(int64_t n) { return (n + kSumRun - 1) / kSumRun; }

void sum_of_squares(const Stream& stream, const float* x, int64_t n, double* partials, double* out) {
  const int64_t runs = sum_of_squares_partials(n);
  for_each_team<kThreads>(stream, "sum_of_squares", runs, [=] ATHANOR_BODY(const Team<kThreads>& team) {
    const int64_t begin = team.index() * kSumRun, end = begin + kSumRun < n ? begin + kSumRun : n;
    const double sum = team.sum<double>([=](int thread) {
      double mine = 0;
      for (int64_t i = begin + thread; i < end; i += kThreads) mine += static_cast<double>(x[i]) * x[i];
      return mine;
    });
    team.each([=](int thread) {
      if (thread == 0) partials[team.index()] = sum;
    });
  });
  for_each_team<kThreads>(stream, "sum_of_squares: total", 1, [=] ATHANOR_BODY(const Team<kThreads>& team) {
    const double sum = team.sum<double>([=](int thread) {
      double mine = 0;
      for (int64_t i = thread; i < runs; i += kThreads) mine += partials[i];
      return mine;
    });
    team.each([=](int thread) {
      if (thread == 0) *out = sum;
    });
  });
}

}  // namespace athanor::kernels::cuda
