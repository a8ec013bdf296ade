#pragma once
// Normal numbers of a counter on a device, with the bits of CounterRandom::fill_normal.

#include <cstdint>

#include "base/counter_normal.h"
#include "kernels/cuda/stream.h"

namespace athanor::kernels::cuda {

/// Sets out[i] to scale times the standard normal number `first` + i of a stream, for i in [0, count).
void fill_normal(const Stream& stream, const CounterKey& key, float* out, int64_t first, int64_t count, double scale);

}  // namespace athanor::kernels::cuda
