#include "kernels/cuda/lamb.h"

#include <cmath>
#include <type_traits>

#include "kernels/cuda/master_packs.h"

namespace athanor::kernels::cuda {
namespace {

// The order of operations is that of kernels/cpu/update.cpp.
struct LambRule {
  explicit LambRule(const LambStep& s)
      : rest1(static_cast<float>(1 - s.beta1)), rest2(static_cast<float>(1 - s.beta2)),
        beta2(static_cast<float>(s.beta2)), unbias1(1.0f / s.bias_correction1),
        unbias2(1.0f / std::sqrt(s.bias_correction2)), eps(s.eps), decay(s.weight_decay), scale(s.grad_scale) {}

  float rest1, rest2, beta2, unbias1, unbias2, eps, decay, scale;

  ATHANOR_INLINE float operator()(float w, float& m, float& v, float g) const {
    m = m + rest1 * (g - m);
    v = beta2 * v + rest2 * g * g;
    return m * unbias1 / (std::sqrt(v) * unbias2 + eps) + decay * w;
  }
};

// Elements [begin, end) of a part: what a team computes.
struct Run {
  MatrixPart part;
  int64_t begin, end;
};

// first_run of a list that begins within another one does not begin at 0.
ATHANOR_INLINE Run find_run(const MatrixParts& parts, int64_t team) {
  const int64_t number = parts.first_run[0] + team;
  int64_t low = 0, high = parts.count;
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    (parts.first_run[middle] <= number ? low : high) = middle;
  }
  const int64_t begin = (number - parts.first_run[low]) * kMatrixRun;
  return {parts.parts[low], begin, min_of(begin + kMatrixRun, parts.parts[low].size)};
}

// What one thread of a team does: every kThreads-th pack of N elements of n. All pointers are those of the run's first
// element. Adds the squares of masters and directions.
template <int N, class Form>
ATHANOR_INLINE void find_directions(int thread, const LambRule& rule, float grad_scale, const Form& masters,
                                    float* exp_avg, float* exp_avg_sq, float* grad, int64_t n, double& weights,
                                    double& directions) {
  for (int64_t i = thread * N; i < n; i += kThreads * N) {
    const Pack<float, N> w = masters.template load<N>(i);
    Pack<float, N> m = load_pack<N>(exp_avg + i), v = load_pack<N>(exp_avg_sq + i), g = load_pack<N>(grad + i);
    for (int l = 0; l < N; ++l) {
      const float u = rule(w.at[l], m.at[l], v.at[l], g.at[l] * grad_scale);
      g.at[l] = u;
      weights += static_cast<double>(w.at[l]) * w.at[l];
      directions += static_cast<double>(u) * u;
    }
    store_pack(exp_avg + i, m);
    store_pack(exp_avg_sq + i, v);
    store_pack(grad + i, g);
  }
}

template <class Form>
void find_directions(const Stream& stream, const LambRule& rule, const MatrixParts& parts, const Form& all_masters,
                     float* exp_avg, float* exp_avg_sq, float* grad, double* partials, const float* scale_there) {
  for_each_team<kThreads>(stream, "lamb: directions", parts.runs, [=] ATHANOR_BODY(const Team<kThreads>& team) {
    const Run run = find_run(parts, team.index());
    const int64_t n = run.end - run.begin, state = run.part.state_begin + run.begin;
    const Form masters = all_masters.at(run.part.begin + run.begin, run.part.low_begin + run.begin);
    float *m = exp_avg + state, *v = exp_avg_sq + state, *g = grad + run.part.begin + run.begin;
    const bool packs = masters.can_pack_with(n, m, v, g);
    PerThread<double, kThreads> of_directions;
    auto* directions = &of_directions;
    const double weights = team.template sum<double>([=](int thread) {
      const float grad_scale = scale_there ? *scale_there : rule.scale;
      double mine = 0, moved = 0;
      if (grad_scale == grad_scale) {
        if (packs) {
          find_directions<kPack<float>>(thread, rule, grad_scale, masters, m, v, g, n, mine, moved);
        } else {
          find_directions<1>(thread, rule, grad_scale, masters, m, v, g, n, mine, moved);
        }
      }
      directions->of(thread) = moved;
      return mine;
    });
    const double moved = team.template sum<double>([=](int thread) { return directions->of(thread); });
    const bool is_counted = run.part.is_counted != 0;
    team.each([=](int thread) {
      if (thread < 2) partials[2 * team.index() + thread] = is_counted ? (thread == 0 ? weights : moved) : 0.0;
    });
  });
}

// What one thread of a team does, as above. Returns how many weights changed.
template <int N, class Form>
ATHANOR_INLINE int64_t apply_to(int thread, float rate, const Form& masters, float* direction, int64_t n) {
  int64_t changed = 0;
  for (int64_t i = thread * N; i < n; i += kThreads * N) {
    const Pack<float, N> d = load_pack<N>(direction + i);
    changed += masters.template change<N>(i, [&](Pack<float, N>& x) {
      for (int l = 0; l < N; ++l) x.at[l] -= rate * d.at[l];
    });
    store_pack(direction + i, Pack<float, N>{});
  }
  return changed;
}

template <class Form>
void apply_parts(const Stream& stream, double factor, const float* ratios, const MatrixParts& parts, int64_t begin,
                 int64_t end, const Form& all_masters, float* direction, int64_t* changed, const float* scale_there) {
  for_each_team<kThreads>(stream, "lamb: step", parts.runs, [=] ATHANOR_BODY(const Team<kThreads>& team) {
    const Run run = find_run(parts, team.index());
    const int64_t before = begin - run.part.begin, first = before > run.begin ? before : run.begin;
    const int64_t n = min_of(run.end, end - run.part.begin) - first;
    const Form masters = all_masters.at(run.part.begin + first, run.part.low_begin + first);
    float* d = direction + run.part.begin + first;
    const bool packs = masters.can_pack_with(n, d);
    const float rate = static_cast<float>(factor * static_cast<double>(ratios[run.part.matrix]));
    const int64_t count = team.template sum<int64_t>([=](int thread) {
      if (scale_there && *scale_there != *scale_there) return int64_t{0};
      return packs ? apply_to<kPack<float>>(thread, rate, masters, d, n) : apply_to<1>(thread, rate, masters, d, n);
    });
    team.add_once(changed, count);
  });
}

}  // namespace

void lamb_directions(const Stream& stream, const LambStep& step, const MatrixParts& parts, const Masters& masters,
                     float* exp_avg, float* exp_avg_sq, float* grad, double* partials, const float* grad_scale) {
  with_form(masters, [&](const auto& form) {
    find_directions(stream, LambRule(step), parts, form, exp_avg, exp_avg_sq, grad, partials, grad_scale);
  });
}

void add_lamb_partials(const Stream& stream, const MatrixParts& parts, const double* partials, double* squares) {
  for_each_team<kThreads>(stream, "lamb: sums", parts.count, [=] ATHANOR_BODY(const Team<kThreads>& team) {
    const int64_t first = team.index(), matrix = parts.parts[first].matrix;
    if (first > 0 && parts.parts[first - 1].matrix == matrix) return;
    int64_t last = first + 1;
    while (last < parts.count && parts.parts[last].matrix == matrix) ++last;
    const int64_t begin = parts.first_run[first] - parts.first_run[0], end = parts.first_run[last] - parts.first_run[0];
    for (int64_t kind = 0; kind < 2; ++kind) {
      const double sum = team.template sum<double>([=](int thread) {
        double mine = 0;
        for (int64_t i = begin + thread; i < end; i += kThreads) mine += partials[2 * i + kind];
        return mine;
      });
      team.each([=](int thread) {
        if (thread == 0) squares[2 * matrix + kind] += sum;
      });
    }
  });
}

void apply_lamb(const Stream& stream, double factor, const float* ratios, const MatrixParts& parts, int64_t begin,
                int64_t end, const Masters& masters, float* direction, int64_t* changed, const float* grad_scale) {
  with_form(masters, [&](const auto& form) {
    apply_parts(stream, factor, ratios, parts, begin, end, form, direction, changed, grad_scale);
  });
}

}  // namespace athanor::kernels::cuda
