#include "kernels/expert_activation.h"

#include <algorithm>

#include "kernels/gated_unit.h"
#include "kernels/gelu.h"

namespace athanor::kernels {
namespace {

// Writes value(i) of each row's elements, times the weight of its choice; zeros for padding.
template <class T, class F>
ATHANOR_INLINE void forward(const float* weights, const int64_t* choice_of_row, T* act, int64_t begin, int64_t end,
                            int64_t width, F value) {
  for (int64_t r = begin; r < end; ++r) {
    const int64_t choice = choice_of_row[r], at = r * width;
    T* __restrict a = act + at;
    if (choice < 0) {
      std::fill_n(a, width, T{});
    } else if (!weights) {
#pragma GCC ivdep  // value() reads other rows' tensors
      for (int64_t i = 0; i < width; ++i) store(a[i], value(at + i));
    } else {
      const float w = weights[choice];
#pragma GCC ivdep
      for (int64_t i = 0; i < width; ++i) store(a[i], w * value(at + i));
    }
  }
}

template <bool kSwiGlu, class T>
ATHANOR_INLINE void gated_forward(const T* gate, const T* up, const float* weights, const int64_t* choice_of_row,
                                  T* act, int64_t begin, int64_t end, int64_t width, const GatedUnit& unit) {
  const T* __restrict g = gate, * __restrict u = up;
  forward(
      weights, choice_of_row, act, begin, end, width, [=](int64_t i) __attribute__((always_inline)) {
        const GatedTerms<kSwiGlu> of(unit, load(g[i]), load(u[i]));
        return of.silu * of.factor;
      });
}

constexpr int64_t kRun = 256;  // elements at once: a multiple of the lanes

// silu' = σ + g·σ·(1 − σ). `terms` receives each element's part of the weight's gradient. This loop contains no sums,
// so that the compiler vectorises it.
template <bool kSwiGlu, class T>
ATHANOR_INLINE void backward_run(const T* __restrict gate, const T* __restrict up, T* __restrict dact,
                                 T* __restrict dup, T* __restrict act, float weight, float* __restrict terms, int64_t n,
                                 const GatedUnit& unit) {
  for (int64_t i = 0; i < n; ++i) {
    const float d = load(dact[i]);
    const GatedTerms<kSwiGlu> of(unit, load(gate[i]), load(up[i]));
    const float weighted = weight * d, a = of.silu * of.factor;
    store(act[i], weight * a);
    store(dup[i], kSwiGlu ? weighted * of.silu : weighted * of.silu * of.by_up);
    store(dact[i], weighted * of.factor * of.by_gate);
    terms[i] = a * d;
  }
}

template <class T>
ATHANOR_INLINE void gelu_run(const T* __restrict up, T* __restrict dact, T* __restrict act, float weight,
                             float* __restrict terms, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const float x = load(up[i]), d = load(dact[i]), a = gelu_of<GeluForm::kTanh>(x);
    store(act[i], weight * a);
    store(dact[i], weight * d * gelu_slope<GeluForm::kTanh>(x));
    terms[i] = a * d;
  }
}

// Calls run(first element, elements, weight, terms) for runs of each row, and clear(row) for padding.
template <class Run, class Clear>
ATHANOR_INLINE void backward(const float* weights, const int64_t* choice_of_row, float* dweights, int64_t begin,
                             int64_t end, int64_t width, Run run, Clear clear) {
  alignas(64) float terms[kRun];
  for (int64_t r = begin; r < end; ++r) {
    const int64_t choice = choice_of_row[r];
    if (choice < 0) {
      clear(r);
      continue;
    }
    float lanes[kLanes] = {};
    for (int64_t first = 0; first < width; first += kRun) {
      const int64_t n = std::min(kRun, width - first), at = r * width + first;
      run(at, n, weights[choice], terms);
      int64_t i = 0;
      for (; i + kLanes <= n; i += kLanes) {
        for (int l = 0; l < kLanes; ++l) lanes[l] += terms[i + l];
      }
      for (int l = 0; i + l < n; ++l) lanes[l] += terms[i + l];
    }
    dweights[choice] = sum_lanes(lanes);
  }
}

template <bool kSwiGlu, class T>
ATHANOR_INLINE void gated_backward(const T* gate, const T* up, T* dact, T* dup, T* act, const float* weights,
                                   const int64_t* choice_of_row, float* dweights, int64_t begin, int64_t end,
                                   int64_t width, const GatedUnit& unit) {
  backward(
      weights, choice_of_row, dweights, begin, end, width,
      [=](int64_t at, int64_t n, float weight, float* terms) __attribute__((always_inline)) {
        backward_run<kSwiGlu>(gate + at, up + at, dact + at, dup + at, act + at, weight, terms, n, unit);
      },
      [=](int64_t row) {
        for (T* rows : {dact, dup, act}) std::fill_n(rows + row * width, width, T{});
      });
}

template <class T>
ATHANOR_INLINE void add_bias(const ExpertBias<T>& bias, const float* weights, const int64_t* choice_of_row, T* rows,
                             int64_t begin, int64_t end, int64_t width) {
  for (int64_t r = begin; r < end; ++r) {
    const int64_t choice = choice_of_row[r];
    if (choice < 0) continue;
    const float w = weights ? weights[choice] : 1.0f;
    const T* __restrict b = bias.values + bias.expert_of(r) * bias.columns;
    T* __restrict to = rows + r * width + bias.first_column;
    for (int64_t i = 0; i < bias.columns; ++i) store(to[i], load(to[i]) + w * load(b[i]));
  }
}

template <class T>
ATHANOR_INLINE void bias_backward(const ExpertBias<T>& bias, const T* dy, const int64_t* choice_of_row, float* dweights,
                                  int64_t begin, int64_t end, int64_t width) {
  for (int64_t r = begin; r < end; ++r) {
    const int64_t choice = choice_of_row[r];
    if (choice < 0) continue;
    const T *b = bias.values + bias.expert_of(r) * bias.columns, *d = dy + r * width + bias.first_column;
    dweights[choice] += sum_over(bias.columns, [=](int64_t i) { return load(b[i]) * load(d[i]); });
  }
}

}  // namespace

template <class T>
int64_t ExpertBias<T>::expert_of(int64_t row) const {
  return std::upper_bound(first_row, first_row + experts + 1, row) - first_row - 1;
}

#define ATHANOR_EXPERT_ACTIVATION(T)                                                                                  \
  template struct ExpertBias<T>;                                                                                      \
  template <>                                                                                                         \
  ATHANOR_EACH_ISA void expert_activation<T>(const T* gate, const T* up, const float* weights,                        \
                                             const int64_t* choice_of_row, T* act, int64_t begin, int64_t end,        \
                                             int64_t width, const GatedUnit& unit) {                                  \
    if (unit.is_swiglu())                                                                                             \
      gated_forward<true>(gate, up, weights, choice_of_row, act, begin, end, width, unit);                            \
    else                                                                                                              \
      gated_forward<false>(gate, up, weights, choice_of_row, act, begin, end, width, unit);                           \
  }                                                                                                                   \
  template <>                                                                                                         \
  ATHANOR_EACH_ISA void expert_activation_backward<T>(                                                                \
      const T* gate, const T* up, T* dact, T* dup, T* act, const float* weights, const int64_t* choice_of_row,        \
      float* dweights, int64_t begin, int64_t end, int64_t width, const GatedUnit& unit) {                            \
    if (unit.is_swiglu())                                                                                             \
      gated_backward<true>(gate, up, dact, dup, act, weights, choice_of_row, dweights, begin, end, width, unit);      \
    else                                                                                                              \
      gated_backward<false>(gate, up, dact, dup, act, weights, choice_of_row, dweights, begin, end, width, unit);     \
  }                                                                                                                   \
  template <>                                                                                                         \
  ATHANOR_EACH_ISA void expert_gelu<T>(const T* up, const float* weights, const int64_t* choice_of_row, T* act,       \
                                       int64_t begin, int64_t end, int64_t width) {                                   \
    forward(                                                                                                          \
        weights, choice_of_row, act, begin, end,                                                                      \
        width, [=](int64_t i) __attribute__((always_inline)) { return gelu_of<GeluForm::kTanh>(load(up[i])); });      \
  }                                                                                                                   \
  template <>                                                                                                         \
  ATHANOR_EACH_ISA void expert_gelu_backward<T>(const T* up, T* dact, T* act, const float* weights,                   \
                                                const int64_t* choice_of_row, float* dweights, int64_t begin,         \
                                                int64_t end, int64_t width) {                                         \
    backward(                                                                                                         \
        weights, choice_of_row, dweights, begin, end, width,                                                          \
        [=](int64_t at, int64_t n, float weight, float* terms)                                                        \
            __attribute__((always_inline)) { gelu_run(up + at, dact + at, act + at, weight, terms, n); },             \
        [=](int64_t row) {                                                                                            \
          for (T * rows : {dact, act}) std::fill_n(rows + row * width, width, T{});                                   \
        });                                                                                                           \
  }                                                                                                                   \
  template <>                                                                                                         \
  ATHANOR_EACH_ISA void add_expert_bias<T>(const ExpertBias<T>& bias, const float* weights,                           \
                                           const int64_t* choice_of_row, T* rows, int64_t begin, int64_t end,         \
                                           int64_t width) {                                                           \
    add_bias(bias, weights, choice_of_row, rows, begin, end, width);                                                  \
  }                                                                                                                   \
  template <>                                                                                                         \
  ATHANOR_EACH_ISA void expert_bias_backward<T>(const ExpertBias<T>& bias, const T* dy, const int64_t* choice_of_row, \
                                                float* dweights, int64_t begin, int64_t end, int64_t width) {         \
    bias_backward(bias, dy, choice_of_row, dweights, begin, end, width);                                              \
  }

ATHANOR_EXPERT_ACTIVATION(float)
ATHANOR_EXPERT_ACTIVATION(Bf16)

}  // namespace athanor::kernels
