#pragma once
// The backends of devices. For each there are two files, of which a build has one: one opens the backend, the other
// reports its absence.

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <memory>

#include "comm/communicator.h"

namespace athanor::comm {

struct DeviceGroupStart {
  c10::intrusive_ptr<c10d::Store> store;  ///< for this group alone
  int rank, size;
  std::chrono::milliseconds timeout;
  c10::Device device;
  std::shared_ptr<Communicator> carrier;  ///< for a device that the host plays: a group of these ranks for host tensors
};

bool have_nccl();
bool have_xccl();
/// @throws CommError if the backend is absent.
c10::intrusive_ptr<c10d::Backend> open_nccl(const DeviceGroupStart& start);
c10::intrusive_ptr<c10d::Backend> open_xccl(const DeviceGroupStart& start);

/// The backend of the device that the host plays in tests; null in every program but tests.
using OpenGuarded = c10::intrusive_ptr<c10d::Backend> (*)(const DeviceGroupStart& start);
OpenGuarded guarded_groups();
void set_guarded_groups(OpenGuarded open);

/// Opens a libtorch process group; both kinds are made in the same way.
template <class ProcessGroup>
c10::intrusive_ptr<c10d::Backend> open_process_group(const DeviceGroupStart& start) {
  auto options = ProcessGroup::Options::create();
  // The library's watchdog ends the process without the names of ranks: ours comes first (watch/device_watch.h).
  options->timeout = 2 * start.timeout + std::chrono::minutes(1);
  auto group = c10::make_intrusive<ProcessGroup>(start.store, start.rank, start.size, std::move(options));
  group->setBoundDeviceId(start.device);  // a barrier has no tensor to learn it from
  return group;
}

}  // namespace athanor::comm
