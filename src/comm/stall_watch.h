#pragma once
// An object that sees where a stream of a device waits for collectives and messages of a group.

namespace athanor::comm {

class StallWatch {
 public:
  virtual ~StallWatch() = default;
  /// Called on the caller's thread right before and right after a wait for a call of the group is queued on the
  /// caller's current stream (Pending::wait). Neither may wait for a device or for another rank.
  virtual void stall_begins() = 0;
  virtual void stall_ends() = 0;
};

}  // namespace athanor::comm
