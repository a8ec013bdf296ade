#pragma once
// Choices of experts on a device, in torch ops and kernels/cuda/: the host waits for SWIPE only. The results are those
// of the functions for the host. (Scores and weights on a device are the portable forms of scores.h.)

#include "moe/balance.h"
#include "ops/tensor.h"

namespace athanor::moe::on_device {

/// Returns the k best experts of each token, int64, best first; of equal scores the lower index.
Tensor choose(const Tensor& scores_TE, int64_t k);
/// Returns the choices of each expert in each sequence, fp32 [B, E].
Tensor count_choices(const Tensor& ids_TK, int64_t num_sequences, int64_t num_experts);
/// Returns the choices of each expert that are not dropped, int64 [E].
Tensor count_taken(const Tensor& ids_TK, int64_t num_experts);

/// Balances whole groups of choices, in place. Returns the numbers of choices moved and dropped, int64 [2], on the
/// device. SWIPE runs on the host, which waits: a choice depends on all earlier ones.
/// @param scores_TK  undefined if options.needs_scores() is false.
Tensor balance_groups(const BalanceOptions& options, const Tensor& ids_TK, const Tensor& scores_TK, int64_t num_groups,
                      int64_t num_experts);

}  // namespace athanor::moe::on_device
