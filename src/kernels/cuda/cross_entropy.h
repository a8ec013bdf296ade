#pragma once
// Cross entropy over rows of logits on a device, with its gradient written over them; kernels/cross_entropy.h has the
// definition. The sum over the vocabulary has a team's order.

#include <cstdint>

#include "kernels/cross_entropy.h"
#include "kernels/cuda/stream.h"

namespace athanor::kernels::cuda {

/// kernels::cross_entropy. Targets are in [0, vocab) or kNoTarget.
template <class T>
void cross_entropy(const Stream& stream, T* logits, const int64_t* targets, float* losses, bool* is_greedy,
                   int64_t rows, int64_t vocab, float grad_scale);

/// *bad = the lowest index of a target that is neither kNoTarget nor in [0, vocab), or −1. It is one int64 in the
/// stream's memory.
void find_bad_target(const Stream& stream, const int64_t* targets, int64_t count, int64_t vocab, int64_t* bad);

}  // namespace athanor::kernels::cuda
