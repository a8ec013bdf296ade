#pragma once
// Runs a command in a world of ranks and handles what is thrown there.

#include <functional>

#include "comm/world.h"
#include "train/run_context.h"

namespace athanor::inline run {

/// Opens the world and runs `body` in it.
///
/// An exception from `body` ends the whole job: the message ("rank 3 (node7): step 12: …") is the last line, and the
/// job's exit code is that of base/failure.h for the exception. Nothing is communicated on the way, and the other ranks
/// are not waited for. If a run had begun, its folder gets the last words (record/last_words.h) of the rank that failed
/// first. Exceptions from before the world is open are not caught.
/// @return the exit code: the result of `body`, or, in a job of one process, the exception's.
int in_world(const comm::WorldOptions& options, const std::function<int(comm::World&, RunContext&)>& body);

}  // namespace athanor::inline run
