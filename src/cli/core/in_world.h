#pragma once
// The program's catch for what is thrown among communicating ranks.

#include <functional>

#include "comm/world.h"
#include "train/whereabouts.h"

namespace athanor {

/// Opens the world and runs `body` in it.
///
/// What `body` throws ends the whole job: the message ("rank 3 (node7): step 12: …") is the last line, the exception's
/// exit code that of the job. Nothing is communicated on the way, and the other ranks are not waited for. Where a run
/// had begun, its folder gets the last words (train/last_words.h) of the rank that failed first. Before the world is
/// open, exceptions pass to main's catch.
/// @return body's answer, as exit code.
int in_world(const comm::WorldOptions& options, const std::function<int(comm::World&, Whereabouts&)>& body);

}  // namespace athanor
