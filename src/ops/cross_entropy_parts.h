#pragma once
// Cross entropy in three parts, without autograd, for logits whose vocabulary several ranks have: between the parts
// maxima and sums are taken over ranks.

#include "ops/tensor.h"

namespace athanor::ops {

/// Logits of some tokens for ids [first, first + width) of a vocabulary.
struct LogitsPart {
  Tensor logits;   ///< [rows, width], compute type, contiguous
  Tensor targets;  ///< [rows] int64, ids of the whole vocabulary; −100: none
  int64_t first = 0;

  int64_t rows() const { return logits.size(0); }
  int64_t width() const { return logits.size(1); }
  Tensor has_target() const;  ///< [rows] bool
};

// All but logits and targets are fp32 [rows].

/// The largest logit of each row; −∞ without a target.
void row_maxima_into(const LogitsPart& part, const Tensor& maxima);

/// sums = Σ exp(logit − maximum), at_target = the target's logit where its id is of this part, else 0; both 0 without a
/// target. `earlier` may be undefined: 1 where an id below the target's reaches the maximum, else 0.
void exp_sums_into(const LogitsPart& part, const Tensor& maxima, const Tensor& sums, const Tensor& at_target,
                   const Tensor& earlier);

/// Logits become (softmax − onehot) · grad_scale, zeros without a target.
void to_softmax_gradient(const LogitsPart& part, const Tensor& maxima, const Tensor& sums, double grad_scale);

namespace portable {
void row_maxima_into(const LogitsPart& part, const Tensor& maxima);
void exp_sums_into(const LogitsPart& part, const Tensor& maxima, const Tensor& sums, const Tensor& at_target,
                   const Tensor& earlier);
void to_softmax_gradient(const LogitsPart& part, const Tensor& maxima, const Tensor& sums, double grad_scale);
}  // namespace portable

}  // namespace athanor::ops
