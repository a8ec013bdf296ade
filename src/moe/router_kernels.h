#pragma once
// A router on a device that has our kernels (kernels/cuda/router.h, noise.h, balance.h): from logits to a routing in a
// few launches, without a copy and without a wait.

#include "kernels/router.h"
#include "moe/router.h"

namespace athanor::moe::on_device {

/// Computes moe::route from its logits. Choices, weights and counts are those of the CPU for the same logits.
Routing route_with_kernels(const Tensor& logits_TE, const RouterOptions& options, const kernels::RouterRule& rule,
                           int64_t num_sequences, const Choices* saved);

}  // namespace athanor::moe::on_device
