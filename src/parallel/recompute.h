#pragma once
// Selective activation checkpointing: what backward needs is computed a second time instead of kept.
//
// Gradients keep their bits: the second computation is the first one again, on the same inputs, in the same order, and
// what must not happen twice (routing, counting) is saved by whoever writes the region.

#include <functional>
#include <string>
#include <vector>

#include "ops/tensor.h"

namespace athanor {

/// The values of parallelism.recompute.
struct RecomputeKinds {
  bool norm = false;       ///< outputs of the norms before attention and feed-forward
  bool attention = false;  ///< everything between the normed input and the output of attention
  bool moe = false;        ///< the same of the feed-forward, sparse or dense; routing is saved
  bool layer = false;      ///< everything between the residual streams before and after a layer; contains the others
};

RecomputeKinds parse_recompute(const std::vector<std::string>& kinds);

/// Computes region(x), keeping x and nothing else. Backward computes it again with gradients and goes through it.
///
/// @param region  is called twice (once where no gradient is wanted): same values, and weights enter it as `Weight`s,
///                whose gradients go into their buckets in the second call's backward only. It outlives this call, so
///                it owns what it captures, or refers to what outlives the step.
/// @return the region's outputs; each may have a gradient or none.
std::vector<Tensor> checkpoint(const Tensor& x, std::function<std::vector<Tensor>(const Tensor& x)> region);

/// Frees the memory of `forgotten`, until a gradient reaches `consumer`; then compute() fills it again. Every op that
/// saved `forgotten` (it, not a copy) for its backward must lie on the way to `consumer`, and have run.
/// @param compute  answers the same values again; called without gradients.
void forget_until_backward(const Tensor& forgotten, const Tensor& consumer, std::function<Tensor()> compute);

}  // namespace athanor
