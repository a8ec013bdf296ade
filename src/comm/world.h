#pragma once
// All processes of a job, and this one among them.
//
// Which MPI started us is read from the environment; a plugin of that kind (libathanor_mpi_openmpi.so or
// libathanor_mpi_mpich.so beside the program) is opened then. So one build runs under either, and a process that no
// launcher started needs none.

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace athanor::comm {

struct WorldOptions {
  std::chrono::milliseconds timeout{std::chrono::minutes(30)};  ///< of one collective
  bool check = false;                                           ///< GroupOptions::check, for every group
  int ranks_per_node = 0;                                       ///< 0: those that have this rank's host name
  int nodes_per_supernode = 0;                                  ///< 0: every node in one
  int fake_rank = 0, fake_size = 0;  ///< size above 0: this rank of a world without peers, whose collectives do nothing
};

class World {
 public:
  /// Collective over the job that base/launched.h says this process is of.
  /// @throws CommError naming what could not be opened, and how it is built; ConfigError where copies of this process
  ///         were started that it cannot find.
  static std::unique_ptr<World> open(const WorldOptions& options);
  virtual ~World() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual const std::vector<std::string>& hosts() const = 0;  ///< of each rank
  virtual const std::vector<int>& supernodes() const = 0;     ///< of each rank
  const std::string& host() const { return hosts()[static_cast<size_t>(rank())]; }
  virtual Communicator& all() = 0;

  /// The group of `partition` that this rank is in. Every rank calls it with the same partition of the world (each rank
  /// once; the order in a group is the order of its sums) and in the same order; nothing is sent.
  virtual std::unique_ptr<Communicator> make_group(const std::vector<std::vector<int>>& partition,
                                                   const std::string& name) = 0;

  /// Says that so many bytes or pieces of long work of this rank are done, which others wait for in a collective: while
  /// the count grows they go on waiting, whatever the timeout. Any thread may call it.
  virtual void note_work(int64_t /*amount*/) {}

  /// Ends the job, every rank of it, with this exit code. To be called when what went wrong has been said.
  [[noreturn]] virtual void abort(int exit_code) = 0;
};

}  // namespace athanor::comm
