#pragma once
// The differentiable part of a router: from logits to scores, and from scores and choices to weights and sums.

#include "kernels/router.h"
#include "ops/tensor.h"

namespace athanor::moe {

/// The scores by which experts are chosen; no gradient.
struct Scores {
  Tensor scores_TE;    ///< fp32
  Tensor logsumexp_T;  ///< fp32
};

// Tensors are those of the host.

/// Returns the scores of logits_TE, which are contiguous, bf16 or fp32.
Scores compute_scores(const Tensor& logits_TE, const kernels::RouterRule& rule);

/// Returns the weights [T, K] fp32, without gradient.
/// @param ids_TK  contiguous int64; ~expert for a dropped choice.
Tensor weights_of(const Scores& scores, const Tensor& ids_TK, const kernels::RouterRule& rule);

/// The members of Routing with the same names.
struct Weighed {
  Tensor weights_TK, prob_sum_BE, z_sum;  ///< differentiable with respect to the logits
  Tensor numbers;                         ///< the last two of Routing::counts
};

/// Returns weights and sums. Sums are over pieces of a sequence of fixed length, so that neither threads nor other
/// sequences change a bit. Keeps scores, logsumexp, ids and, for sigmoid scores, logits for backward.
Weighed weigh(const Tensor& logits_TE, const Scores& scores, const Tensor& ids_TK, int64_t num_sequences,
              const kernels::RouterRule& rule);

namespace portable {
/// The same functions in torch ops that autograd differentiates: those that run on a device without our kernels.
Scores compute_scores(const Tensor& logits_TE, const kernels::RouterRule& rule);
Tensor weights_of(const Scores& scores, const Tensor& ids_TK, const kernels::RouterRule& rule);
Weighed weigh(const Tensor& logits_TE, const Tensor& ids_TK, int64_t num_sequences, const kernels::RouterRule& rule);
}  // namespace portable

}  // namespace athanor::moe
