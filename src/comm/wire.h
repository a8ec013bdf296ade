#pragma once
// What collectives ask of a network: messages between two processes of a job, and word of which are over.
//
// The one interface that every kind of MPI implements (mpi/mpi_wire.cpp, compiled once for each MPI into a plugin, so
// nothing here names libtorch or a library of ours), and threads of one process for tests (thread_wire.h).

#include <cstdint>
#include <vector>

namespace athanor::comm {

class Wire {
 public:
  struct Finished {
    uint64_t token;
    int64_t bytes;  ///< what a receive got; kTooMuch where there was more than room for it
    int peer;
  };
  static constexpr int64_t kTooMuch = -1;
  static constexpr int64_t kMaxMessage = int64_t{1} << 30;  ///< MPI counts with an int

  static constexpr int kAnyPeer = -1;     ///< for receives with kControlTag only
  static constexpr int kControlTag = -1;  ///< beside all others, so that it slows none of them down

  virtual ~Wire() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual int max_tag() const = 0;

  // Both answer at once. `data` stays untouched (or is not looked at) until poll() names the token. Messages of one
  // sender, receiver and tag are matched in the order in which each side started them.
  virtual void send(int peer, int tag, const void* data, int64_t bytes, uint64_t token) = 0;
  virtual void receive(int peer, int tag, void* data, int64_t bytes, uint64_t token) = 0;

  /// Lets messages go on, and appends those that are over.
  virtual void poll(std::vector<Finished>& finished) = 0;

  /// The clean end: every process comes here, with no messages under way but receives that nothing will come for.
  /// Without it the launcher is told, by the process's end, that it failed.
  virtual void close() = 0;
  /// Ends all processes of the job.
  [[noreturn]] virtual void abort(int exit_code) = 0;
};

/// What a plugin exports under the name kOpenWire. Throws std::runtime_error.
using OpenWire = Wire* (*)();
inline constexpr const char* kOpenWire = "athanor_open_wire";

}  // namespace athanor::comm
