#pragma once
// The language-model head and its loss in one op: logits exist for a chunk of tokens at a time, never for all.

#include "ops/label_draw.h"
#include "ops/tensor.h"

namespace athanor::ops {

/// Returns Σ over targets of −log softmax(x Wᵀ)[target], an fp64 scalar. Positions with target −100 contribute nothing.
///
/// The gradient is computed with the logits, in forward: d(loss_sum · grad_scale) is added into weight.grad at once and
/// passed to x in backward, which therefore must be called with a gradient of one (as Stage does). grad_scale is one
/// over the number of targets of the global batch, known before the step; it may not be 0.
/// @param x             [tokens, hidden].
/// @param targets       [tokens] int64.
/// @param weight        [vocab, hidden]; its gradient must be defined.
/// @param chunk_tokens  rows of logits held at a time.
/// @param draw  if it draws, each target is replaced by a label that is drawn from the model's probabilities.
/// @param cap   bound of the logits (soft_cap.h); 0: none. With one, logits of a chunk exist before and after it.
/// @throws DataError as check_targets.
Tensor linear_cross_entropy(const Tensor& x, const Weight& weight, const Tensor& targets, double grad_scale,
                            int64_t chunk_tokens, const LabelDraw& draw = {}, double cap = 0);

/// For each token, its loss, fp32 [tokens] (0 without a target), and whether greedy decoding would have chosen the
/// target, bool [tokens] (false without one). Without gradient.
struct TokenLosses {
  Tensor loss, is_greedy;
};
TokenLosses token_losses(const Tensor& x, const Tensor& weight, const Tensor& targets, int64_t chunk_tokens,
                         double cap = 0);

/// Checks targets of the host; those of a device make a loss NaN if they are wrong.
/// @param targets  int64, contiguous.
/// @throws DataError naming the first target that is neither −100 nor in [0, vocab).
void check_targets(const Tensor& targets, int64_t vocab);

/// Asserts that the gradient of a loss, fp64 without dims, is 1, since forward has added the weight's gradient. The
/// host does not wait for the gradient if that is on a device.
void check_unit_gradient(const Tensor& dloss);

namespace portable {
Tensor linear_cross_entropy(const Tensor& x, const Tensor& weight, const Tensor& targets, double cap = 0);
}

}  // namespace athanor::ops
