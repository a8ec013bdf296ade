#include "kernels/cross_entropy.h"

#include <cmath>

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
ATHANOR_INLINE void rows_of(T* logits, const int64_t* targets, float* losses, bool* is_greedy, int64_t rows,
                            int64_t vocab, float grad_scale) {
  for (int64_t row = 0; row < rows; ++row, logits += vocab) {
    const int64_t target = targets[row];
    if (target == kNoTarget) {
      losses[row] = 0;
      if (is_greedy) is_greedy[row] = false;
      if (grad_scale != 0) {
        for (int64_t i = 0; i < vocab; ++i) store(logits[i], 0.0f);
      }
      continue;
    }
    const float peak = max_of(logits, vocab);
    const float at_target = load(logits[target]);
    if (is_greedy) {
      int64_t first = 0;
      while (load(logits[first]) < peak) ++first;
      is_greedy[row] = first == target;
    }
    const float total = sum_over(vocab, [logits, peak](int64_t i) { return exp_fast(load(logits[i]) - peak); });
    losses[row] = (peak - at_target) + std::log(total);
    if (grad_scale == 0) continue;
    const float scale = grad_scale / total;
    for (int64_t i = 0; i < vocab; ++i) store(logits[i], exp_fast(load(logits[i]) - peak) * scale);
    store(logits[target], (exp_fast(at_target - peak) / total - 1.0f) * grad_scale);
  }
}

}  // namespace

#define ATHANOR_CROSS_ENTROPY(T)                                                                             \
  template <>                                                                                                \
  ATHANOR_EACH_ISA void cross_entropy<T>(T * logits, const int64_t* targets, float* losses, bool* is_greedy, \
                                         int64_t rows, int64_t vocab, float grad_scale) {                    \
    rows_of(logits, targets, losses, is_greedy, rows, vocab, grad_scale);                                    \
  }

ATHANOR_CROSS_ENTROPY(float)
ATHANOR_CROSS_ENTROPY(Bf16)

}  // namespace athanor::kernels
