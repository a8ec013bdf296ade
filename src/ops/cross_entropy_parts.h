#pragma once
// Cross entropy in three parts, without autograd, for logits whose vocabulary is spread over several ranks: between the
// parts the caller takes maxima and sums over ranks.

#include "ops/tensor.h"

namespace athanor::ops {

/// Logits of some tokens for ids [first, first + width) of a vocabulary.
struct LogitsPart {
  Tensor logits;   ///< [rows, width], compute type, contiguous
  Tensor targets;  ///< [rows] int64, ids of the whole vocabulary; −100: no target
  int64_t first = 0;

  int64_t rows() const { return logits.size(0); }
  int64_t width() const { return logits.size(1); }
  Tensor has_target() const;  ///< [rows] bool
};

// All tensors other than logits and targets are fp32 [rows].

/// Writes the largest logit of each row of this part into `maxima`; −∞ without a target, or if the width is 0.
void row_maxima_into(const LogitsPart& part, const Tensor& maxima);

/// Sets sums = Σ exp(logit − maximum) over this part, and at_target to the target's logit if its id is in this part,
/// else 0; both are 0 without a target. `maxima` are over all ranks. Sets `earlier`, which may be undefined, to 1 if an
/// id of this part below the target's reaches the maximum, else 0.
void exp_sums_into(const LogitsPart& part, const Tensor& maxima, const Tensor& sums, const Tensor& at_target,
                   const Tensor& earlier);

/// Replaces the logits by (softmax − onehot) · grad_scale, zeros without a target; maxima and sums are over all ranks.
void to_softmax_gradient(const LogitsPart& part, const Tensor& maxima, const Tensor& sums, double grad_scale);

namespace portable {
void row_maxima_into(const LogitsPart& part, const Tensor& maxima);
void exp_sums_into(const LogitsPart& part, const Tensor& maxima, const Tensor& sums, const Tensor& at_target,
                   const Tensor& earlier);
void to_softmax_gradient(const LogitsPart& part, const Tensor& maxima, const Tensor& sums, double grad_scale);
}  // namespace portable

}  // namespace athanor::ops
