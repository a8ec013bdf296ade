#pragma once
// How much memory of a device tensors take, as libtorch's allocator for the device counts it.

#include <cstdint>
#include <optional>

#include "ops/tensor.h"

namespace athanor::ops {

/// What recorded graphs (ops/graph.h) keep for their next launch is held, and not in use.
struct DeviceMemory {
  int64_t in_use_bytes = 0;       ///< bytes of tensors that are alive
  int64_t peak_in_use_bytes = 0;  ///< the most since the first use of the device or reset_peak_device_memory
  int64_t held_bytes = 0;         ///< taken from the device: in use, kept for later tensors, and kept by graphs
};

/// Returns the counts of the allocator for the device, zeros if nothing is allocated there yet; nothing for the CPU.
std::optional<DeviceMemory> device_memory(at::Device device);
void reset_peak_device_memory(at::Device device);

/// Gives what the allocator keeps for later tensors back to the device.
void release_device_memory(at::Device device);

}  // namespace athanor::ops
