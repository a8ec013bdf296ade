#pragma once
// What routers on the host and on a device share, and the choices of experts on a device without our kernels, in torch
// ops, where the host waits for SWIPE. The results are those of the functions for the host. (The form with kernels is
// router_kernels.h; scores and weights without them are the portable forms of scores.h.)

#include "base/random.h"
#include "kernels/cuda/balance.h"
#include "moe/balance.h"
#include "moe/router.h"
#include "ops/tensor.h"

namespace athanor::moe::on_device {

/// The noise of a router's logits: logit i of the microbatch gets number `first` + i, times `scale`.
struct NoiseNumbers {
  CounterRandom random;
  int64_t first;
  double scale;
};
NoiseNumbers noise_numbers(const RouterNoise& noise, int64_t logits_of_sequence);

/// Returns the balance groups of choices.
/// @throws ConfigError if they do not fit the sequences; Error if SWIPE cannot even them out.
kernels::cuda::ChoiceGroups choice_groups(const BalanceOptions& options, const Tensor& ids_TK, int64_t num_sequences,
                                          int64_t num_experts);

/// Returns the k best experts of each token, int64, best first; of equal scores the lower index.
Tensor choose(const Tensor& scores_TE, int64_t k);
/// Returns the choices of each expert in each sequence, fp32 [B, E].
Tensor count_choices(const Tensor& ids_TK, int64_t num_sequences, int64_t num_experts);
/// Returns the choices of each expert that are not dropped, int64 [E].
Tensor count_taken(const Tensor& ids_TK, int64_t num_experts);

/// Balances whole groups of choices, in place. Returns the numbers of choices moved and dropped, int64 [2], on the
/// device.
/// @param scores_TK  undefined if options.needs_scores() is false.
Tensor balance_groups(const BalanceOptions& options, const Tensor& ids_TK, const Tensor& scores_TK, int64_t num_groups,
                      int64_t num_experts);

/// The same for this rank's part of one group that is spread over ranks. Collective over them.
Tensor balance_share(const BalanceOptions& options, comm::Communicator& ranks, const Tensor& ids_TK,
                     const Tensor& scores_TK, int64_t num_experts);

/// Returns the rows of all ranks, one rank after the other. Collective; each has as many.
Tensor gather_rows(comm::Communicator& ranks, const Tensor& rows);

}  // namespace athanor::moe::on_device
