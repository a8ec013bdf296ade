#pragma once
// The meeting place of a job without MPI: libtorch's store at MASTER_ADDR and MASTER_PORT, as torchrun's jobs use it.

#include <chrono>
#include <memory>

#include "base/launched.h"
#include "wire/meeting_place.h"

namespace athanor::comm {

/// Opens the store: rank 0 serves it, unless the launcher does (TORCHELASTIC_USE_AGENT_STORE); the others connect, and
/// wait up to `patience` for it. The store ends with the object of the rank that serves it.
/// @throws ConfigError if MASTER_ADDR is unknown, out of reach or, on rank 0, not an address of this host, or if
/// another
///         program has MASTER_PORT; CommError naming the address if no process has come that serves a store.
std::unique_ptr<MeetingPlace> open_store_meeting(const MasterAddress& master, int rank,
                                                 std::chrono::milliseconds patience);

}  // namespace athanor::comm
