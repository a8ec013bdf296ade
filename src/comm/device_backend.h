#pragma once
// Groups of ranks that each drive a device, over the collectives that libtorch brings: NCCL for CUDA, XCCL for XPU.
//
// What CMake found stands in device/: a file with the backend, or one that says it is absent. Sums run as those
// libraries run them: not along our tree, and bf16 is rounded at every hop; only what a host group adds up has bits
// that do not depend on the network. Timeouts and traffic are Communicator's as everywhere; a collective that is stuck
// on a device is ended by the library's own watch.

#include <c10/core/Device.h>

#include <memory>

#include "comm/world.h"

namespace c10d {
class Store;
}

namespace athanor::comm {

/// Whether this build can join devices of this type.
bool have_device_backend(c10::DeviceType type);

class DeviceGroups {
 public:
  /// Collective over the world: all meet at a store of libtorch's that rank 0 serves. `world` must outlive it.
  /// @param device  of this rank, with its index: different ranks of one host have different ones.
  /// @throws CommError if this build has no backend for it, or the store cannot be reached.
  DeviceGroups(World& world, c10::Device device);
  ~DeviceGroups();

  /// The same ranks as `host_group`, in its order. Collective over them; host groups with the same name and members in
  /// common are made in the same order everywhere.
  std::unique_ptr<Communicator> make_group(const Communicator& host_group);

 private:
  c10::Device device_;
  c10::intrusive_ptr<c10d::Store> store_;
  int64_t num_groups_ = 0;
};

/// This rank's number among those of its host: the index of its device where each has one.
int index_on_host(const World& world);

/// A store of libtorch's that rank 0 serves on a free port. Collective over the world.
c10::intrusive_ptr<c10d::Store> open_store(World& world, std::chrono::milliseconds timeout);

}  // namespace athanor::comm
