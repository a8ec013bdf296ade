#pragma once
// Cross entropy over rows of logits, with its gradient written over them.

#include <cstdint>

#include "kernels/element.h"

namespace athanor::kernels {

/// Marks a position without a target (the same value as in `transformers`).
constexpr int64_t kNoTarget = -100;

/// Computes losses[row] = logsumexp(logits) − logits[target] for logits [rows, vocab], or 0 for a row without a target.
/// If `grad_scale` ≠ 0, the logits are overwritten with (softmax − onehot) · grad_scale, or zeros without a target.
/// @param targets    each in [0, vocab), or kNoTarget.
/// @param is_greedy  may be null; set to true if the target has the largest logit (the lowest index wins ties), else to
///                   false.
template <class T>
void cross_entropy(T* logits, const int64_t* targets, float* losses, bool* is_greedy, int64_t rows, int64_t vocab,
                   float grad_scale);

// The three functions below compute the cross entropy if several ranks share the vocabulary. `logits` [rows, vocab] are
// those of the ids [first, first + vocab), and targets are ids of the whole vocabulary. Between the functions, the
// caller reduces maxima and sums over ranks. Rows without a target get a maximum of −∞, and zeros everywhere else.

/// Computes maxima[row], the largest of this rank's logits; −∞ also if vocab is 0.
template <class T>
void row_maxima(const T* logits, const int64_t* targets, float* maxima, int64_t rows, int64_t vocab);

/// Computes sums[row] = Σ exp(logit − maxima[row]) over this rank's ids, and at_target[row], the target's logit, or 0
/// if this rank does not have its id.
/// @param maxima   over all ranks.
/// @param earlier  may be null; set to 1 if one of this rank's ids below the target reaches the maximum, else to 0.
template <class T>
void exp_sums(const T* logits, const int64_t* targets, const float* maxima, float* sums, float* at_target,
              float* earlier, int64_t rows, int64_t vocab, int64_t first);

/// Overwrites the logits with (exp(logit − maxima[row]) / sums[row] − onehot) · grad_scale; maxima and sums are over
/// all ranks.
template <class T>
void softmax_gradient(T* logits, const int64_t* targets, const float* maxima, const float* sums, int64_t rows,
                      int64_t vocab, int64_t first, float grad_scale);

}  // namespace athanor::kernels
