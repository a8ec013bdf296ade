#pragma once
// How many kernels a device runs for a piece of work, for benchmarks: a step of many small kernels is limited by their
// launches.

#include <cstdint>
#include <functional>
#include <optional>

#include "ops/tensor.h"

namespace athanor::ops {

/// Runs `work`, and returns the number of kernels that `device` ran for it. Nothing if that is not known: on a CPU, on
/// an XPU, and on CUDA without CUPTI. The device that the host plays counts copies as well.
std::optional<int64_t> count_launches(at::Device device, const std::function<void()>& work);

}  // namespace athanor::ops
