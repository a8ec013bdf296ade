#pragma once
// A Wire over sockets of TCP, for jobs without MPI. It has no thread: every call makes progress only as far as it can
// without waiting.
//
// It also does what an MPI's launcher does for other wires: it ends the whole job. Each rank has connections to its
// parent and its children in the tree over all ranks (index_tree.h), and each child of rank 0 to the next one, from the
// start. If a connection ends without a farewell, its peer has died. The ranks that notice inform all that they are
// connected with, and these inform others. All are informed after log₂ n messages, also if rank 0 is the one that died.
// The end of the job travels in the same way.

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "wire/meeting_place.h"
#include "wire/wire.h"

namespace athanor::comm {

struct TcpWireOptions {
  int rank = 0, size = 1;
  std::string master = "localhost";                             ///< host of the meeting place
  std::string host;                                             ///< name of this machine, for messages
  std::chrono::milliseconds patience{std::chrono::minutes(1)};  ///< for ranks that do not come to the meeting
  /// How long a process that was told of a death has to end by itself, before the wire ends it.
  std::chrono::milliseconds own_end{6000};
  std::function<void(int exit_code)> end_process;  ///< ends this process; _exit if there is none, else for tests
};

/// Meets the other ranks of the job. Collective over it. @throws CommError
std::unique_ptr<Wire> open_tcp_wire(std::shared_ptr<MeetingPlace> place, TcpWireOptions options);

}  // namespace athanor::comm
