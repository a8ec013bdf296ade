#include "parallel/reduction_clock.h"

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace athanor::inline parallel {
namespace {

c10::impl::VirtualGuardImpl guard_of(at::Device device) { return c10::impl::VirtualGuardImpl(device.type()); }

}  // namespace

void ReductionClock::begin() {
  buckets_.clear();
  first_start_.reset();
  end_of_backward_.reset();
  on_host_ = {};
}

c10::Event ReductionClock::now(const c10::Stream& stream) const {
  c10::Event event(device_.type(), c10::EventFlag::BACKEND_DEFAULT);  // with a time
  event.record(stream);
  return event;
}

void ReductionClock::add(const comm::Pending& first, int64_t bytes) {
  on_host_.bytes += bytes;
  if (!first.is_queued()) return buckets_.push_back({first, bytes, std::nullopt});
  if (!follower_) follower_ = guard_of(device_).getStreamFromGlobalPool(device_);
  if (!first_start_) first_start_ = now(guard_of(device_).getStream(device_));
  const c10::StreamGuard on_follower(*follower_);
  first.follow();
  buckets_.push_back({{}, bytes, now(*follower_)});
}

void ReductionClock::end_backward() {
  if (first_start_) end_of_backward_ = now(guard_of(device_).getStream(device_));
  for (const Bucket& bucket : buckets_)
    if (!bucket.over && bucket.first.done()) on_host_.bytes_sent_in_backward += bucket.bytes;
}

ReductionTrace ReductionClock::trace() const {
  ReductionTrace trace = on_host_;
  if (!end_of_backward_ || !first_start_) return trace;
  try {
    for (const Bucket& bucket : buckets_)
      if (bucket.over && was_over(bucket)) trace.bytes_sent_in_backward += bucket.bytes;
  } catch (const c10::Error&) {
    // Libraries of some devices compare no times, and then throw at every step. A measurement must not end a run, and
    // nothing else is hidden: an error of the device's work stays there, and the host has met it when it waited.
    return {};
  }
  return trace;
}

// The last event of a follower may come a moment after the step.
bool ReductionClock::was_over(const Bucket& bucket) const {
  if (!bucket.over->query()) return false;
  return first_start_->elapsedTime(*bucket.over) <= first_start_->elapsedTime(*end_of_backward_);
}

}  // namespace athanor::inline parallel
