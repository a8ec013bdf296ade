#pragma once
// Which device a run computes on.

#include <cstdint>
#include <optional>
#include <string>

#include "ops/tensor.h"

namespace athanor::ops {

/// A rank among those of its host.
struct PlaceOnHost {
  int index = 0, ranks = 1;
};

/// Returns the device that a name ("auto", "cpu", "cuda" or "xpu") means on this machine. "auto" is an accelerator if
/// libtorch sees one, else the CPU. A process that sees several devices takes the one with its index on the host; one
/// that sees a single device takes that. Asks drivers, but allocates nothing.
/// @param setting  the field or option that has the name, for messages.
/// @throws ConfigError in one line: no such device, a build without it, or fewer devices than ranks of the host.
at::Device choose_device(const std::string& name, const PlaceOnHost& place = {},
                         const std::string& setting = "train.device");

/// Sets, for the whole process, how libtorch computes on an accelerator: products are added in fp32 and not in bf16 or
/// TF32, and attention is not cuDNN's, which compiles a kernel for each new shape. choose_device calls it, and so does
/// a model, since programs may give it a device that they have not chosen here. Does nothing for the CPU.
void set_numerics_of(at::Device device);

/// Makes `device` the one that libtorch's calls without a device mean in this thread. Does nothing for the CPU.
void make_current(at::Device device);

/// Returns in a few words why "auto" takes the CPU: "libtorch has no CUDA".
std::string why_cpu();

/// Returns why "auto" did not take a GPU that this machine has: its driver is too old, or libtorch has no CUDA. Empty
/// in every other case.
std::string why_not_accelerated();

struct DeviceFacts {
  std::string name;  ///< "NVIDIA H200"; empty if it is not known
  std::string id;    ///< differs between the devices of a host; empty if it is not known
  /// Memory that can be allocated, and all that the device has; -1 if they are not known.
  int64_t free_bytes = -1, total_bytes = -1;
};
/// Returns nothing for the CPU, whose memory is the host's.
std::optional<DeviceFacts> facts_of(at::Device device);

}  // namespace athanor::ops
