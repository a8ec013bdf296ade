#pragma once
// What is reported if a device has no memory left in a step.

#include <c10/util/Exception.h>

#include <string>
#include <string_view>

#include "train/train_state.h"

namespace athanor::inline memory {

/// What libtorch states about an allocation on a device that failed, in bytes; −1: it does not state it.
struct FailedAllocation {
  double asked = -1;   ///< size of the allocation
  double in_use = -1;  ///< by tensors
  double kept = -1;    ///< by libtorch for later tensors
  double free = -1;    ///< on the device
};

/// Reads the message of a c10::OutOfMemoryError. libtorch has no other form of these numbers for every kind of device,
/// and after the exception the memory of the step is free again.
FailedAllocation read_failed_allocation(std::string_view message);

/// Returns one line: the allocation, the memory in use and free, what holds it, and what to change.
std::string describe_out_of_memory(const TrainState& state, int64_t step, const c10::OutOfMemoryError& error);

}  // namespace athanor::inline memory
