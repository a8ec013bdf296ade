#pragma once
// Selective activation checkpointing: tensors that backward needs are computed a second time instead of kept.
//
// Gradients keep their bits: the second computation repeats the first, on the same inputs, in the same order. The
// region's author saves the results of steps that must not happen twice (routing, counting).

#include <functional>
#include <string>
#include <vector>

#include "ops/tensor.h"

namespace athanor {

/// The values of parallelism.recompute.
struct RecomputeKinds {
  bool norm = false;       ///< outputs of the norms before attention and feed-forward
  bool attention = false;  ///< everything between the normed input and the output of attention
  /// Everything between the normed input and the output of the feed-forward, sparse or dense; routing is saved.
  bool moe = false;
  bool layer = false;  ///< everything between the residual streams before and after a layer; contains the others
};

RecomputeKinds parse_recompute(const std::vector<std::string>& kinds);

/// Computes region(x), keeping only x. Backward computes it again with gradients and goes through it.
///
/// @param region  is called twice (once if no gradient is needed): it must compute the same values. Weights enter it as
///        `Weight`s, whose gradients go into their buckets in the second call's backward only. It outlives this call,
///        so it owns what it captures, or refers to objects that outlive the step.
/// @return the region's outputs; each may have a gradient or none.
std::vector<Tensor> checkpoint(const Tensor& x, std::function<std::vector<Tensor>(const Tensor& x)> region);

/// Frees the memory of `forgotten` until a gradient reaches `consumer`; then compute() fills it again. Every op that
/// saved `forgotten` (the tensor itself, not a copy) for its backward must lie on the way to `consumer`, and have run.
/// @param compute  returns the same values again; called without gradients.
void forget_until_backward(const Tensor& forgotten, const Tensor& consumer, std::function<Tensor()> compute);

}  // namespace athanor
