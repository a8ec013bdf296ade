#include "comm/device_calls.h"

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <algorithm>

namespace athanor::comm {

DeviceCall::DeviceCall(const CallRecord& record, c10::intrusive_ptr<c10d::Work> work, c10::Stream watch)
    : record_(record), work_(std::move(work)), watch_(watch) {}

DeviceCall::~DeviceCall() = default;

void DeviceCall::let_go() {
  if (!work_) return;
  const c10::StreamGuard on_watch(watch_);
  work_->wait();
  end_.emplace(watch_.device_type());
  end_->record(watch_);
  work_.reset();
}

bool DeviceCall::is_complete() const { return work_ ? work_->isCompleted() : end_->query(); }

std::exception_ptr DeviceCall::exception() const { return work_ ? work_->exception() : nullptr; }

// A device is asked seldom: each question costs about as much as the call.
std::shared_ptr<DeviceCall> DeviceCalls::add(const CallRecord& record, const c10::intrusive_ptr<c10d::Work>& work,
                                             c10::Device device) {
  constexpr size_t kBetweenLooks = 64;
  if (calls_.size() >= look_at_) {
    drop_complete();
    look_at_ = calls_.size() + kBetweenLooks;
  }
  if (!watch_) watch_ = c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device, true);
  calls_.push_back(std::make_shared<DeviceCall>(record, work, *watch_));
  return calls_.back();
}

// They complete in their order.
void DeviceCalls::drop_complete() {
  const auto is_incomplete = [](const auto& call) { return !call->is_complete(); };
  calls_.erase(calls_.begin(), std::ranges::find_if(calls_, is_incomplete));
}

const DeviceCall* DeviceCalls::oldest_incomplete() {
  drop_complete();
  return calls_.empty() ? nullptr : calls_.front().get();
}

const DeviceCall* DeviceCalls::oldest_failed() const {
  const auto failed = std::ranges::find_if(calls_, [](const auto& call) { return call->exception() != nullptr; });
  return failed == calls_.end() ? nullptr : failed->get();
}

}  // namespace athanor::comm
