#include "kernels/cross_entropy.h"

#include <cmath>
#include <limits>

namespace athanor::kernels {
namespace {

template <class T>
ATHANOR_INLINE float max_of(const T* x, int64_t n) {
  float lanes[kLanes];
  for (float& lane : lanes) lane = load(x[0]);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int l = 0; l < kLanes; ++l) {
      const float value = load(x[i + l]);
      lanes[l] = value > lanes[l] ? value : lanes[l];
    }
  }
  for (; i < n; ++i) lanes[0] = load(x[i]) > lanes[0] ? load(x[i]) : lanes[0];
  float best = lanes[0];
  for (const float lane : lanes) best = lane > best ? lane : best;
  return best;
}

template <class T>
ATHANOR_INLINE float exponentials_of(const T* logits, int64_t vocab, float peak) {
  return sum_over(vocab, [logits, peak](int64_t i) { return exp_fast(load(logits[i]) - peak); });
}

template <class T>
ATHANOR_INLINE void clear(T* logits, int64_t vocab) {
  for (int64_t i = 0; i < vocab; ++i) store(logits[i], 0.0f);
}

// Writes the softmax times grad_scale; the target's part is not subtracted yet.
template <class T>
ATHANOR_INLINE void to_softmax(T* logits, int64_t vocab, float peak, float total, float grad_scale) {
  const float scale = grad_scale / total;
  for (int64_t i = 0; i < vocab; ++i) store(logits[i], exp_fast(load(logits[i]) - peak) * scale);
}

ATHANOR_INLINE float target_gradient(float at_target, float peak, float total, float grad_scale) {
  return (exp_fast(at_target - peak) / total - 1.0f) * grad_scale;
}

template <class T>
ATHANOR_INLINE void rows_of(T* logits, const int64_t* targets, float* losses, bool* is_greedy, int64_t rows,
                            int64_t vocab, float grad_scale) {
  for (int64_t row = 0; row < rows; ++row, logits += vocab) {
    const int64_t target = targets[row];
    if (target == kNoTarget) {
      losses[row] = 0;
      if (is_greedy) is_greedy[row] = false;
      if (grad_scale != 0) clear(logits, vocab);
      continue;
    }
    const float peak = max_of(logits, vocab);
    const float at_target = load(logits[target]);
    if (is_greedy) {
      int64_t first = 0;
      while (load(logits[first]) < peak) ++first;
      is_greedy[row] = first == target;
    }
    const float total = exponentials_of(logits, vocab, peak);
    losses[row] = (peak - at_target) + std::log(total);
    if (grad_scale == 0) continue;
    to_softmax(logits, vocab, peak, total, grad_scale);
    store(logits[target], target_gradient(at_target, peak, total, grad_scale));
  }
}

template <class T>
ATHANOR_INLINE void maxima_of(const T* logits, const int64_t* targets, float* maxima, int64_t rows, int64_t vocab) {
  for (int64_t row = 0; row < rows; ++row, logits += vocab) {
    const bool counts = targets[row] != kNoTarget && vocab > 0;
    maxima[row] = counts ? max_of(logits, vocab) : -std::numeric_limits<float>::infinity();
  }
}

template <class T>
ATHANOR_INLINE void sums_of(const T* logits, const int64_t* targets, const float* maxima, float* sums, float* at_target,
                            float* earlier, int64_t rows, int64_t vocab, int64_t first) {
  for (int64_t row = 0; row < rows; ++row, logits += vocab) {
    sums[row] = at_target[row] = 0;
    if (earlier) earlier[row] = 0;
    if (targets[row] == kNoTarget) continue;
    const int64_t target = targets[row] - first;
    sums[row] = exponentials_of(logits, vocab, maxima[row]);
    if (target >= 0 && target < vocab) at_target[row] = load(logits[target]);
    for (int64_t i = 0; earlier && i < vocab && i < target; ++i) {
      if (load(logits[i]) >= maxima[row]) earlier[row] = 1;
    }
  }
}

template <class T>
ATHANOR_INLINE void gradient_of(T* logits, const int64_t* targets, const float* maxima, const float* sums, int64_t rows,
                                int64_t vocab, int64_t first, float grad_scale) {
  for (int64_t row = 0; row < rows; ++row, logits += vocab) {
    if (targets[row] == kNoTarget) {
      clear(logits, vocab);
      continue;
    }
    const int64_t target = targets[row] - first;
    const bool is_here = target >= 0 && target < vocab;
    const float at_target = is_here ? load(logits[target]) : 0;
    to_softmax(logits, vocab, maxima[row], sums[row], grad_scale);
    if (is_here) store(logits[target], target_gradient(at_target, maxima[row], sums[row], grad_scale));
  }
}

}  // namespace

#define ATHANOR_CROSS_ENTROPY(T)                                                                                    \
  template <>                                                                                                       \
  ATHANOR_EACH_ISA void cross_entropy<T>(T * logits, const int64_t* targets, float* losses, bool* is_greedy,        \
                                         int64_t rows, int64_t vocab, float grad_scale) {                           \
    rows_of(logits, targets, losses, is_greedy, rows, vocab, grad_scale);                                           \
  }                                                                                                                 \
  template <>                                                                                                       \
  ATHANOR_EACH_ISA void row_maxima<T>(const T* logits, const int64_t* targets, float* maxima, int64_t rows,         \
                                      int64_t vocab) {                                                              \
    maxima_of(logits, targets, maxima, rows, vocab);                                                                \
  }                                                                                                                 \
  template <>                                                                                                       \
  ATHANOR_EACH_ISA void exp_sums<T>(const T* logits, const int64_t* targets, const float* maxima, float* sums,      \
                                    float* at_target, float* earlier, int64_t rows, int64_t vocab, int64_t first) { \
    sums_of(logits, targets, maxima, sums, at_target, earlier, rows, vocab, first);                                 \
  }                                                                                                                 \
  template <>                                                                                                       \
  ATHANOR_EACH_ISA void softmax_gradient<T>(T * logits, const int64_t* targets, const float* maxima,                \
                                            const float* sums, int64_t rows, int64_t vocab, int64_t first,          \
                                            float grad_scale) {                                                     \
    gradient_of(logits, targets, maxima, sums, rows, vocab, first, grad_scale);                                     \
  }

ATHANOR_CROSS_ENTROPY(float)
ATHANOR_CROSS_ENTROPY(Bf16)

}  // namespace athanor::kernels
