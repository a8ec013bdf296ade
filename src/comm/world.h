#pragma once
// All processes of a job, and this one among them.
//
// The environment tells which MPI started this process; a plugin of that kind (libathanor_mpi_openmpi.so or
// libathanor_mpi_mpich.so, next to libathanor) is then opened. So one build runs under either, and a process without a
// launcher needs none. If the environment is torchrun's, the processes meet at a store of libtorch, and send their
// messages over TCP (wire/tcp_wire.h).

#include <c10/core/Device.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace athanor::comm {

struct WorldOptions {
  std::chrono::milliseconds timeout{std::chrono::minutes(30)};  ///< limit for one collective
  bool check = false;                                           ///< GroupOptions::check, for every group
  int ranks_per_node = 0;                                       ///< 0: the ranks that share a host name
  int nodes_per_supernode = 0;                                  ///< 0: all nodes are in one
  board::Publisher board = {};                                  ///< GroupOptions::board, for every group
  int fake_rank = 0, fake_size = 0;  ///< size above 0: this rank of a world without peers, whose collectives do nothing
};

class World {
 public:
  /// Opens the job that base/launched.h reports for this process. Collective over it.
  /// @throws CommError naming what could not be opened, and how it is built; ConfigError if copies of this process were
  ///        started that it cannot find.
  static std::unique_ptr<World> open(const WorldOptions& options);
  virtual ~World() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual const std::vector<std::string>& hosts() const = 0;  ///< for each rank
  virtual const std::vector<int>& supernodes() const = 0;     ///< for each rank
  virtual const std::string& network() const = 0;             ///< name of the library that carries messages, or empty
  const std::string& host() const { return hosts()[static_cast<size_t>(rank())]; }
  virtual Communicator& all() = 0;

  /// Whether other ranks exchange tensors of `device`, the CPU aside, with this one.
  bool has_peers_on(c10::Device device) const { return !device.is_cpu() && size() > 1; }

  /// Returns the group of `partition` that this rank is in. Every rank must call it with the same partition of the
  /// world (each rank once; the order in a group is the order of its sums) and in the same order; nothing is sent.
  /// @param device  where the tensors of the group are; the same on every call that does not name the CPU. The first
  ///                such call is collective (DeviceGroups).
  /// @param tree_sums  for devices: adds the terms of sums, which then run along the tree (comm/device_backend.h);
  ///                   null: sums are the library's.
  virtual std::unique_ptr<Communicator> make_group(const std::vector<std::vector<int>>& partition,
                                                   const std::string& name, c10::Device device = c10::kCPU,
                                                   SumTerms tree_sums = nullptr) = 0;

  /// Adds `amount` to the work that this rank has done: the bytes or pieces of a long task since the last call. Ranks
  /// that wait for this one in a collective continue to wait, whatever the timeout, as long as it has noted work within
  /// the last timeout. Any thread may call it.
  virtual void note_work(int64_t /*amount*/) {}

  /// Ends all processes of the job at once, with this exit code. Not collective. To be called after the cause has been
  /// reported.
  [[noreturn]] virtual void abort(int exit_code) = 0;
};

}  // namespace athanor::comm
