#pragma once
// The backends of devices. For each there are two files, of which a build has one: one opens the backend, the other
// reports its absence.

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>

namespace athanor::comm {

struct DeviceGroupStart {
  c10::intrusive_ptr<c10d::Store> store;  ///< for this group alone
  int rank, size;
  std::chrono::milliseconds timeout;
  c10::Device device;
};

bool have_nccl();
bool have_xccl();
/// @throws CommError if the backend is absent.
c10::intrusive_ptr<c10d::Backend> open_nccl(const DeviceGroupStart& start);
c10::intrusive_ptr<c10d::Backend> open_xccl(const DeviceGroupStart& start);

/// Opens a libtorch process group; both kinds are made in the same way.
template <class ProcessGroup>
c10::intrusive_ptr<c10d::Backend> open_process_group(const DeviceGroupStart& start) {
  auto options = ProcessGroup::Options::create();
  options->timeout = start.timeout;
  auto group = c10::make_intrusive<ProcessGroup>(start.store, start.rank, start.size, std::move(options));
  group->setBoundDeviceId(start.device);  // a barrier has no tensor to learn it from
  return group;
}

}  // namespace athanor::comm
