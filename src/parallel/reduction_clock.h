#pragma once
// How much of a step's gradient reduction backward has hidden.

#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "comm/communicator.h"
#include "ops/tensor.h"

namespace athanor::inline parallel {

/// Sizes of buckets in the type that is sent. Only the first collective of each bucket counts (GroupPlan::scatter, or
/// else GroupPlan::sum). All is zero for one rank.
struct ReductionTrace {
  int64_t bytes = 0;                   ///< size of all buckets
  int64_t bytes_sent_in_backward = 0;  ///< size of those whose first collective was complete when backward ended

  /// Returns their ratio; nothing if there are no buckets.
  std::optional<double> share() const {
    if (bytes == 0) return std::nullopt;
    return static_cast<double>(bytes_sent_in_backward) / static_cast<double>(bytes);
  }
};

/// Watches the collectives of one step. The host sees whether one of its own is complete. On a device it does not wait
/// for backward; there, events record when each collective and backward end, and are compared after the step.
class ReductionClock {
 public:
  /// @param device  of the gradients; a played step has none (kMeta).
  explicit ReductionClock(at::Device device) : device_(device) {}

  /// A step begins.
  void begin();
  /// The first collective of a bucket has been started, in backward or after it.
  void add(const comm::Pending& first, int64_t bytes);
  /// Backward has ended: all of it has been queued on the current stream.
  void end_backward();

  /// On a device: to be called when the host has waited for what followed the collectives on the current stream. All is
  /// zero if the device's library does not compare times.
  ReductionTrace trace() const;

 private:
  struct Bucket {
    comm::Pending first;
    int64_t bytes;
    std::optional<c10::Event> over;  // if a device runs the collective
  };
  c10::Event now(const c10::Stream& stream) const;
  bool was_over(const Bucket& bucket) const;

  at::Device device_;
  std::optional<c10::Stream> follower_;  // waits for each collective, and for nothing else
  std::vector<Bucket> buckets_;
  std::optional<c10::Event> first_start_, end_of_backward_;
  ReductionTrace on_host_;
};

}  // namespace athanor::inline parallel
