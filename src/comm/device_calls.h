#pragma once
// The collectives that a group has queued on a device, by which one that is stuck can be named.
//
// A Work of libtorch holds the tensors of its call: NCCL's for as long as it lives. So it is kept only until the
// caller's stream waits for it; from then on an event tells whether the call is complete.

#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <c10/util/intrusive_ptr.h>

#include <exception>
#include <memory>
#include <optional>
#include <vector>

#include "comm/call.h"

namespace c10d {
class Work;
}

namespace athanor::comm {

class DeviceCall {
 public:
  /// @param watch  a stream on which nothing but the ends of calls of one group is waited for.
  DeviceCall(const CallRecord& record, c10::intrusive_ptr<c10d::Work> work, c10::Stream watch);
  ~DeviceCall();
  DeviceCall(const DeviceCall&) = delete;
  DeviceCall& operator=(const DeviceCall&) = delete;

  const CallRecord& record() const { return record_; }
  /// To be called when a stream of the caller waits for the call: lets go of the Work, and so of the tensors.
  void let_go();
  bool is_complete() const;
  /// What the device's library reports of the call; null if nothing, or if its Work is gone.
  std::exception_ptr exception() const;

 private:
  CallRecord record_;
  c10::intrusive_ptr<c10d::Work> work_;
  c10::Stream watch_;
  std::optional<c10::Event> end_;
};

/// The calls of one group. All are for tensors of one device.
class DeviceCalls {
 public:
  std::shared_ptr<DeviceCall> add(const CallRecord& record, const c10::intrusive_ptr<c10d::Work>& work,
                                  c10::Device device);
  /// The oldest that is not complete, or null.
  const DeviceCall* oldest_incomplete();
  /// The oldest of which the library reports an exception, or null.
  const DeviceCall* oldest_failed() const;

 private:
  void drop_complete();

  std::optional<c10::Stream> watch_;
  /// Those that are not complete, and others until the list has grown to look_at_.
  std::vector<std::shared_ptr<DeviceCall>> calls_;
  size_t look_at_ = 0;
};

}  // namespace athanor::comm
