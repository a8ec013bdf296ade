#pragma once
// Cross entropy over rows of logits, with its gradient written over them.

#include <cstdint>

#include "kernels/element.h"

namespace athanor::kernels {

/// Target of a position that has none (`transformers` uses the same).
constexpr int64_t kNoTarget = -100;

/// For each row: losses[row] = logsumexp(logits) − logits[target], or 0 without a target.
/// With `grad_scale` ≠ 0 the logits are overwritten by (softmax − onehot) · grad_scale, zeros without a target.
/// `is_greedy` (may be null): whether the target has the largest logit, the lowest index winning ties.
template <class T>
void cross_entropy(T* logits, const int64_t* targets, float* losses, bool* is_greedy, int64_t rows, int64_t vocab,
                   float grad_scale);

// The same in three parts, for rows whose vocabulary several ranks have: here `logits` are those of ids [first, first +
// vocab), targets are ids of the whole, and between the parts maxima and sums are taken over ranks. Rows without a
// target are passed over, and get zeros.

/// maxima[row] = the largest logit; −∞ where there is none.
template <class T>
void row_maxima(const T* logits, const int64_t* targets, float* maxima, int64_t rows, int64_t vocab);

/// sums[row] = Σ exp(logit − maxima[row]); at_target[row] = the target's logit, or 0 if its id is not here.
/// `earlier` (may be null): 1 where an id below the target's reaches the maximum, else 0.
template <class T>
void exp_sums(const T* logits, const int64_t* targets, const float* maxima, float* sums, float* at_target,
              float* earlier, int64_t rows, int64_t vocab, int64_t first);

/// Logits become (exp(logit − maxima[row]) / sums[row] − onehot) · grad_scale.
template <class T>
void softmax_gradient(T* logits, const int64_t* targets, const float* maxima, const float* sums, int64_t rows,
                      int64_t vocab, int64_t first, float grad_scale);

}  // namespace athanor::kernels
