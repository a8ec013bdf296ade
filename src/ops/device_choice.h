#pragma once
// Which device a run computes on.

#include <cstdint>
#include <string>

#include "ops/tensor.h"

namespace athanor::ops {

/// Returns the device that a value of train.device ("auto", "cpu", "cuda" or "xpu") means on this machine. "auto" is
/// the first accelerator that libtorch sees if the job has one rank, else the CPU. Asks drivers, but allocates nothing.
/// @throws ConfigError in one line: no such device, a build without it, or several ranks, which train on CPUs only.
at::Device choose_device(const std::string& name, int num_ranks);

struct DeviceFacts {
  std::string name;         ///< "NVIDIA H200"; empty if it is not known
  int64_t free_bytes = -1;  ///< memory that can be allocated; -1 if it is not known
};
DeviceFacts facts_of(at::Device device);

}  // namespace athanor::ops
