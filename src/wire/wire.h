#pragma once
// The interface of a network that collectives use: messages between two processes of a job, and notice of their
// completion.
//
// Every kind of MPI implements it: mpi/mpi_wire.cpp is compiled once for each MPI into a plugin, so nothing here names
// libtorch or a library of ours. So do sockets where there is no MPI (tcp_wire.h), and threads of one process for tests
// (thread_wire.h).

#include <cstdint>
#include <string>
#include <vector>

namespace athanor::comm {

class Wire {
 public:
  struct Finished {
    uint64_t token;  ///< as given to send or receive
    int64_t bytes;   ///< bytes received; kTooMuch if there were more than the room for them; unspecified for a send
    int peer;        ///< sender of what was received; unspecified for a send
  };
  static constexpr int64_t kTooMuch = -1;
  static constexpr int64_t kMaxMessage = int64_t{1} << 30;  ///< MPI counts with an int

  static constexpr int kAnyPeer = -1;     ///< only for receives with kControlTag
  static constexpr int kControlTag = -1;  ///< separate from all other tags, so that it slows none of them down

  virtual ~Wire() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual int max_tag() const = 0;
  /// Returns the library that carries the messages, such as "Open MPI v4.1.4", for records.
  virtual std::string library() const = 0;

  // Both return at once. `data` must not be written (or, for a receive, read) until poll() reports the token, which the
  // caller chooses. `bytes` is at most kMaxMessage; for a receive it is the room. Messages of one sender, receiver and
  // tag are matched in the order in which each side started them, and complete in any order: a short one often before
  // a long one in front of it. Who forwards messages puts them in order first.
  virtual void send(int peer, int tag, const void* data, int64_t bytes, uint64_t token) = 0;
  virtual void receive(int peer, int tag, void* data, int64_t bytes, uint64_t token) = 0;

  /// Makes progress, and appends the messages that are complete.
  virtual void poll(std::vector<Finished>& finished) = 0;

  /// Returns true if the last poll() has moved bytes, also of messages that are not complete. A caller that waits
  /// should not sleep then: the next bytes are near.
  virtual bool has_moved() const { return false; }

  /// To be called now and then once poll() has thrown, until the process ends: a wire without a launcher that ends all
  /// ranks does so here, if this process does not end by itself.
  virtual void poll_after_failure() {}

  /// Ends the job cleanly. Every process must call it, with no messages in flight except receives that nothing will
  /// come for. If a process ends without it, the launcher learns that the process failed.
  virtual void close() = 0;
  /// Ends all processes of the job.
  [[noreturn]] virtual void abort(int exit_code) = 0;
};

/// The function that a plugin exports under the name kOpenWire. @throws std::runtime_error
using OpenWire = Wire* (*)();
inline constexpr const char* kOpenWire = "athanor_open_wire";

}  // namespace athanor::comm
