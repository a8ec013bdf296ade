#pragma once
// The kernels that a device runs for a piece of work, for benchmarks: a step of many small kernels is limited by their
// launches.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ops/tensor.h"

namespace athanor::ops {

/// What a device spent on all launches of one kernel.
struct KernelUse {
  std::string name;
  int64_t launches = 0;
  double seconds = 0;
};

struct DeviceKernels {
  int64_t launches = 0;
  /// those that took longest, longest first, at most kMostKernels; none where times are not known
  std::vector<KernelUse> longest;
};
constexpr size_t kMostKernels = 15;

/// Runs `work`, and returns the kernels that `device` ran for it. Nothing if they are not known: on a CPU, on an XPU,
/// and on CUDA without CUPTI. The device that the host plays counts copies as well, and a recorded graph as one.
std::optional<DeviceKernels> count_launches(at::Device device, const std::function<void()>& work);

}  // namespace athanor::ops
