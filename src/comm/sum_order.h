#pragma once
// In which order a sum over ranks is added, for bounds on its error.

#include <c10/core/Device.h>

#include <cstdint>

namespace athanor::comm {

/// The most that may happen to a term of a sum over ranks.
struct SumOrder {
  int64_t additions;  ///< that follow one another on the way from a rank's term to the sum
  int64_t roundings;  ///< to a type narrower than 32 bits, from the first addition on
};

/// Returns the order over `ranks` ranks, 1 or more, on this rank's device. On the host it is that of the tree
/// (communicator.h). The libraries of devices add in an order of theirs, and round after each addition.
SumOrder sum_order(int64_t ranks, c10::Device device);

}  // namespace athanor::comm
