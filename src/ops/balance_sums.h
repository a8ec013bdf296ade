#pragma once
// Sums over the sparse layers of a microbatch for the losses of routers (moe/balance_loss.h), in torch ops that
// autograd differentiates. The host adds the layers in order. A device computes them together, since ops that are
// launched for each layer cost more than what they compute.

#include <span>

#include "ops/tensor.h"

namespace athanor::ops {

/// Returns the sum of scalars, one for each layer.
Tensor sum_of_layers(std::span<const Tensor> layers);

// E experts, B sequences of 1 / per_token tokens. For each layer: the probabilities summed over each sequence, fp32
// [B, E], and the choices of each expert there. All return E · Σ share · (mean probability), an fp32 scalar.

/// The shares are those of each sequence and layer, and so are the means.
Tensor balance_by_sequence(std::span<const Tensor> count_BE, std::span<const Tensor> prob_sum_BE, double per_token);
/// The shares are given, [layers, E].
Tensor balance_by_share(const Tensor& share_LE, std::span<const Tensor> prob_sum_BE, double per_token);
/// Shares and means are those of all layers and sequences together; the result is times layers · B, as if it were the
/// sum over them.
Tensor balance_of_all(std::span<const Tensor> count_BE, std::span<const Tensor> prob_sum_BE, double per_token);

}  // namespace athanor::ops
