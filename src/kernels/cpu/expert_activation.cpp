#include "kernels/expert_activation.h"

#include <algorithm>

namespace athanor::kernels {
namespace {

template <class T>
ATHANOR_INLINE void forward(const T* gate, const T* up, const float* weights, const int64_t* choice_of_row, T* act,
                            int64_t begin, int64_t end, int64_t width) {
  for (int64_t r = begin; r < end; ++r) {
    const int64_t choice = choice_of_row[r];
    const T* __restrict g = gate + r * width, * __restrict u = up + r * width;
    T* __restrict a = act + r * width;
    if (choice < 0) {
      std::fill_n(a, width, T{});
    } else if (!weights) {
      for (int64_t i = 0; i < width; ++i) store(a[i], load(g[i]) * sigmoid(load(g[i])) * load(u[i]));
    } else {
      const float w = weights[choice];
      for (int64_t i = 0; i < width; ++i) store(a[i], w * (load(g[i]) * sigmoid(load(g[i])) * load(u[i])));
    }
  }
}

constexpr int64_t kRun = 256;  // elements at once: a multiple of the lanes

// silu' = σ + g·σ·(1 − σ). `terms` receives each element's part of the weight's gradient. This loop contains no sums,
// so that the compiler vectorises it.
template <class T>
ATHANOR_INLINE void backward_run(const T* __restrict gate, const T* __restrict up, T* __restrict dact,
                                 T* __restrict dup, T* __restrict act, float weight, float* __restrict terms,
                                 int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const float g = load(gate[i]), u = load(up[i]), d = load(dact[i]);
    const float s = sigmoid(g), silu = g * s, weighted = weight * d;
    const float a = silu * u;
    store(act[i], weight * a);
    store(dup[i], weighted * silu);
    store(dact[i], weighted * u * (s + silu * (1.0f - s)));
    terms[i] = a * d;
  }
}

template <class T>
ATHANOR_INLINE void backward(const T* gate, const T* up, T* dact, T* dup, T* act, const float* weights,
                             const int64_t* choice_of_row, float* dweights, int64_t begin, int64_t end, int64_t width) {
  alignas(64) float terms[kRun];
  for (int64_t r = begin; r < end; ++r) {
    const int64_t choice = choice_of_row[r];
    if (choice < 0) {
      for (T* row : {dact, dup, act}) std::fill_n(row + r * width, width, T{});
      continue;
    }
    float lanes[kLanes] = {};
    for (int64_t first = 0; first < width; first += kRun) {
      const int64_t n = std::min(kRun, width - first), at = r * width + first;
      backward_run(gate + at, up + at, dact + at, dup + at, act + at, weights[choice], terms, n);
      int64_t i = 0;
      for (; i + kLanes <= n; i += kLanes) {
        for (int l = 0; l < kLanes; ++l) lanes[l] += terms[i + l];
      }
      for (int l = 0; i + l < n; ++l) lanes[l] += terms[i + l];
    }
    dweights[choice] = sum_lanes(lanes);
  }
}

}  // namespace

#define ATHANOR_EXPERT_ACTIVATION(T)                                                                                \
  template <>                                                                                                       \
  ATHANOR_EACH_ISA void expert_activation<T>(const T* gate, const T* up, const float* weights,                      \
                                             const int64_t* choice_of_row, T* act, int64_t begin, int64_t end,      \
                                             int64_t width) {                                                       \
    forward(gate, up, weights, choice_of_row, act, begin, end, width);                                              \
  }                                                                                                                 \
  template <>                                                                                                       \
  ATHANOR_EACH_ISA void expert_activation_backward<T>(const T* gate, const T* up, T* dact, T* dup, T* act,          \
                                                      const float* weights, const int64_t* choice_of_row,           \
                                                      float* dweights, int64_t begin, int64_t end, int64_t width) { \
    backward(gate, up, dact, dup, act, weights, choice_of_row, dweights, begin, end, width);                        \
  }

ATHANOR_EXPERT_ACTIVATION(float)
ATHANOR_EXPERT_ACTIVATION(Bf16)

}  // namespace athanor::kernels
