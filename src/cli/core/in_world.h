#pragma once
// The program's catch for what is thrown among communicating ranks.

#include <atomic>
#include <cstdint>
#include <functional>

#include "comm/world.h"

namespace athanor {

/// What a failure's message says beside the rank: whoever knows better writes it here.
struct Whereabouts {
  std::atomic<int64_t> step{0};  ///< underway; 0 before the first
};

/// Opens the world and runs `body` in it.
///
/// What `body` throws ends the whole job: the message ("rank 3 (node7): step 12: …") is the last line, the exception's
/// exit code that of the job. Nothing is communicated on the way, and the other ranks are not waited for. In a world of
/// one rank, and before the world is open, exceptions pass to main's catch.
/// @return body's answer, as exit code.
int in_world(const comm::WorldOptions& options, const std::function<int(comm::World&, Whereabouts&)>& body);

}  // namespace athanor
