#pragma once
// Groups of ranks that each drive a device, over the collectives of libtorch: NCCL for CUDA, XCCL for XPU.
//
// For each library that CMake looked for, device/ has a file with the backend and one that reports its absence. Sums
// run as those libraries run them: not along our tree, and bf16 is rounded at every hop; or along the tree, if the
// caller gives a function that adds terms. Timeouts and traffic are Communicator's, as for other
// groups; a collective that is stuck on a device is ended by the library's watchdog.

#include <c10/core/Device.h>

#include <memory>

#include "comm/world.h"

namespace c10d {
class Backend;
class Store;
}

namespace athanor::comm {

/// True if this build can join devices of this type; hosts it always can.
bool have_device_backend(c10::DeviceType type);

class DeviceGroups {
 public:
  /// Collective over the world: all ranks connect to a libtorch store that rank 0 serves. `world` must outlive it.
  /// @param device  this rank's, with its index: different ranks of one host have different devices.
  /// @throws CommError if this build has no backend for it, or the store cannot be reached.
  DeviceGroups(World& world, c10::Device device);
  ~DeviceGroups();

  /// World::make_group for tensors of the device. Nothing is sent before the first call of a group.
  /// @param tree_sums  null: the library's own sums.
  std::unique_ptr<Communicator> make_group(const std::vector<std::vector<int>>& partition, const std::string& name,
                                           SumTerms tree_sums = nullptr);

 private:
  World& world_;
  c10::Device device_;
  c10::intrusive_ptr<c10d::Store> store_;
  int64_t num_groups_ = 0;
};

/// Returns a backend that passes each call on to `inner`, except sums and means of floating-point numbers. Those run on
/// another stream, so that the caller's continues.
c10::intrusive_ptr<c10d::Backend> with_tree_sums(c10::intrusive_ptr<c10d::Backend> inner, c10::Device device,
                                                 SumTerms sum);

/// Returns this rank's number, from 0, among the ranks of its host: the index of its device if each has one.
int index_on_host(const World& world);

/// Opens a libtorch store that rank 0 serves on a free port. Collective over the world.
c10::intrusive_ptr<c10d::Store> open_store(World& world, std::chrono::milliseconds timeout);

}  // namespace athanor::comm
