#pragma once
// Cross entropy over rows of logits on a device, with its gradient written over them; kernels/cross_entropy.h has the
// definition. The sum over the vocabulary has a team's order (launch.h), so bits differ from those of the CPU.

#include <cstdint>

#include "kernels/cross_entropy.h"
#include "kernels/cuda/stream.h"

namespace athanor::kernels::cuda {

/// kernels::cross_entropy. A target that is neither kNoTarget nor in [0, vocab) has the loss NaN and no gradient.
template <class T>
void cross_entropy(const Stream& stream, T* logits, const int64_t* targets, float* losses, bool* is_greedy,
                   int64_t rows, int64_t vocab, float grad_scale);

/// Sets *sum, in the stream's memory, to the sum of `count` losses in fp64, in one fixed order.
void sum_losses(const Stream& stream, const float* losses, int64_t count, double* sum);

/// Sets *bad, in the stream's memory, to the lowest index of a target that is neither kNoTarget nor in [0, vocab), or
/// to −1 if there is none.
void find_bad_target(const Stream& stream, const int64_t* targets, int64_t count, int64_t vocab, int64_t* bad);

}  // namespace athanor::kernels::cuda
