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

}  // namespace athanor::kernels
