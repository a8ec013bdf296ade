#pragma once
// Selective activation checkpointing: tensors that backward needs are computed a second time instead of kept.
//
// Gradients keep their bits: the second computation repeats the first, on the same inputs, in the same order. Whoever
// writes a region saves in it the results of what must not happen twice (routing, counting).

#include <functional>
#include <vector>

#include "ops/tensor.h"

namespace athanor::inline parallel {

/// Computes region(x), keeping only x. Backward computes it again, with gradients, and runs its backward. If x requires
/// no gradient, or gradients are off, this is region(x).
///
/// @param region  must compute the same values each time it is called. Weights enter it as `Weight`s, whose gradients
///        go into their buckets in the second call's backward only. It is kept until backward, so it owns what it
///        captures, or refers to objects that outlive the step.
/// @return the region's outputs; backward may give a gradient to each of them or to some.
std::vector<Tensor> checkpoint(const Tensor& x, std::function<std::vector<Tensor>(const Tensor& x)> region);

/// Frees the memory of `forgotten` until backward has the gradient of `consumer`; then compute() fills it again. Every
/// op that saved `forgotten` (the tensor itself, not a copy) for its backward must have run, and `consumer` must depend
/// on its result, so that its backward comes later. Does nothing if `consumer` requires no gradient.
/// @param forgotten  contiguous, and all of its storage.
/// @param compute    returns the same values again, in new memory; called without gradients.
void forget_until_backward(const Tensor& forgotten, const Tensor& consumer, std::function<Tensor()> compute);

}  // namespace athanor::inline parallel
