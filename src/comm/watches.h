#pragma once
// Objects that watch the calls of a group on one rank.

#include <cstdint>

#include "base/collective.h"
#include "base/traffic_purpose.h"

namespace at {
class Tensor;
}

namespace athanor::comm {

class Communicator;

/// Sees what a rank is about to send in the collectives of a group.
class SendWatch {
 public:
  virtual ~SendWatch() = default;
  /// Called on the caller's thread before each collective that sends numbers of a floating-point type, if the group has
  /// more than one rank. Must not wait for a device or for another rank.
  /// @param number  of the call in its group, from 0: the same on all of its ranks.
  /// @param sent    what this rank contributes, where it is; on a device, queue what reads it on the current stream.
  ///                Values that are written into it are sent.
  /// @param for_maximum  the ranks' maximum is taken: −∞ then means that this rank has none.
  virtual void about_to_send(const Communicator& group, int64_t number, const at::Tensor& sent, bool for_maximum) = 0;
};

/// While it lives, what this thread sends has that purpose; of several, the one that was made last counts. Without one
/// the calls are for numbers of the step (kLosses).
class SendsFor {
 public:
  explicit SendsFor(TrafficPurpose purpose);
  ~SendsFor();
  SendsFor(const SendsFor&) = delete;
  SendsFor& operator=(const SendsFor&) = delete;

 private:
  TrafficPurpose before_;
};

struct SentCall {
  Collective collective;  ///< kAllToAll for an uneven one, too
  TrafficPurpose purpose;
  int peer;               ///< index in the group of the rank that gets a message; −1: a collective
  int64_t bytes, inside;  ///< that this rank sends, and how many of them stay in its supernode
};

/// Counts what a rank sends in the calls of a group, in their order; messages between two ranks are among them.
class TrafficWatch {
 public:
  virtual ~TrafficWatch() = default;
  /// Called on the caller's thread when a call starts.
  virtual void sends(const Communicator& group, const SentCall& call) = 0;
};

/// Sees where a stream of a device waits for collectives and messages of a group.
class StallWatch {
 public:
  virtual ~StallWatch() = default;
  /// Called on the caller's thread right before and right after a wait for a call of the group is queued on the
  /// caller's current stream (Pending::wait). Neither may wait for a device or for another rank.
  virtual void stall_begins() = 0;
  virtual void stall_ends() = 0;
};

}  // namespace athanor::comm
