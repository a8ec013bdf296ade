#include "kernels/cuda/adamw.h"

#include <cmath>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/pack.h"
#include "kernels/master.h"

namespace athanor::kernels::cuda {
namespace {

// The order of operations is that of kernels/cpu/adamw.cpp.
struct Update {
  Update(const AdamwStep& s, const float* given_there)
      : scale(s.grad_scale), scale_there(given_there), keep(1.0f - s.lr * s.weight_decay),
        step_size(s.lr / s.bias_correction1), beta2(static_cast<float>(s.beta2)),
        rest1(static_cast<float>(1 - s.beta1)), rest2(static_cast<float>(1 - s.beta2)),
        root_correction(std::sqrt(s.bias_correction2)), eps(s.eps) {}

  ATHANOR_INLINE float grad_scale() const { return scale_there ? *scale_there : scale; }

  ATHANOR_INLINE float operator()(float master, float& exp_avg, float& exp_avg_sq, float grad, float grad_scale) const {
    const float g = grad * grad_scale;
    exp_avg = exp_avg + rest1 * (g - exp_avg);
    exp_avg_sq = beta2 * exp_avg_sq + rest2 * g * g;
    return master * keep - step_size * exp_avg / (std::sqrt(exp_avg_sq) / root_correction + eps);
  }

  float scale;
  const float* scale_there;
  float keep, step_size, beta2, rest1, rest2, root_correction, eps;
};

constexpr int kPerTeam = 8;  // packs of each thread: a count is written for every 8 · 256 · 4 elements
constexpr int64_t kSumRun = int64_t{1} << 16;  // elements of one partial sum of squares

// The two forms of masters: where a pack of masters is read from and written to.
struct WholeMaster {
  float* master;
  template <int N>
  ATHANOR_INLINE int apply(const Update& update, int64_t i, Pack<float, N>& m, Pack<float, N>& v,
                           const Pack<float, N>& g, float scale) const {
    Pack<float, N> x = load_pack<N>(master + i);
    int changed = 0;
    for (int l = 0; l < N; ++l) {
      const float before = x.at[l];
      x.at[l] = update(before, m.at[l], v.at[l], g.at[l], scale);
      changed += x.at[l] != before ? 1 : 0;
    }
    store_pack(master + i, x);
    return changed;
  }
};

struct SplitMaster {
  Bf16* weight;
  uint16_t* low;
  template <int N>
  ATHANOR_INLINE int apply(const Update& update, int64_t i, Pack<float, N>& m, Pack<float, N>& v,
                           const Pack<float, N>& g, float scale) const {
    Pack<Bf16, N> w = load_pack<N>(weight + i);
    Pack<uint16_t, N> rest = load_pack<N>(low + i);
    int changed = 0;
    for (int l = 0; l < N; ++l) {
      const uint16_t before = w.at[l].bits;
      split_master(update(join_master(w.at[l], rest.at[l]), m.at[l], v.at[l], g.at[l], scale), w.at[l], rest.at[l]);
      changed += w.at[l].bits != before ? 1 : 0;
    }
    store_pack(weight + i, w);
    store_pack(low + i, rest);
    return changed;
  }
};

template <int N, class Master>
void update_packs(const Stream& stream, const Update& update, const Master& master, float* exp_avg, float* exp_avg_sq,
                  float* grad, int64_t n, int64_t* changed) {
  constexpr int64_t kRun = int64_t{kPerTeam} * kThreads * N;
  for_each_team<kThreads>(stream, "adamw", (n + kRun - 1) / kRun, [=] ATHANOR_BODY(const Team<kThreads>& team) {
    const int64_t begin = team.index() * kRun, end = begin + kRun < n ? begin + kRun : n;
    const int count = team.sum<int>([=](int thread) {
      int mine = 0;
      const float scale = update.grad_scale();
      if (scale != scale) return 0;
      for (int64_t i = begin + thread * N; i < end; i += kThreads * N) {
        Pack<float, N> m = load_pack<N>(exp_avg + i), v = load_pack<N>(exp_avg_sq + i);
        mine += master.apply(update, i, m, v, load_pack<N>(grad + i), scale);
        store_pack(exp_avg + i, m);
        store_pack(exp_avg_sq + i, v);
        store_pack(grad + i, Pack<float, N>{});
      }
      return mine;
    });
    team.add_once(changed, count);
  });
}

}  // namespace

void adamw(const Stream& stream, const AdamwStep& step, float* master, float* exp_avg, float* exp_avg_sq, float* grad,
           int64_t n, int64_t* changed, const float* grad_scale) {
  const Update update(step, grad_scale);
  if (can_pack<float>(n, master, exp_avg, exp_avg_sq, grad)) {
    update_packs<kPack<float>>(stream, update, WholeMaster{master}, exp_avg, exp_avg_sq, grad, n, changed);
  } else {
    update_packs<1>(stream, update, WholeMaster{master}, exp_avg, exp_avg_sq, grad, n, changed);
  }
}

void adamw(const Stream& stream, const AdamwStep& step, Bf16* weight, uint16_t* master_low, float* exp_avg,
           float* exp_avg_sq, float* grad, int64_t n, int64_t* changed, const float* grad_scale) {
  const Update update(step, grad_scale);
  const SplitMaster master{weight, master_low};
  if (can_pack<float>(n, weight, master_low, exp_avg, exp_avg_sq, grad)) {
    update_packs<kPack<float>>(stream, update, master, exp_avg, exp_avg_sq, grad, n, changed);
  } else {
    update_packs<1>(stream, update, master, exp_avg, exp_avg_sq, grad, n, changed);
  }
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
