#include "cli/core/in_world.h"

#include "base/failure.h"
#include "base/log.h"

namespace athanor {
namespace {

// What all ranks meet together they meet within a second, as they compute in step.
constexpr std::chrono::milliseconds kPatience{1500};

}  // namespace

int in_world(const comm::WorldOptions& options, const std::function<int(comm::World&, Whereabouts&)>& body) {
  const auto world = comm::World::open(options);
  Whereabouts whereabouts;
  const Launched me = launched();
  if (world->size() == 1 || me.size == 1) return body(*world, whereabouts);
  try {
    return body(*world, whereabouts);
  } catch (...) {
    const Failure failure = describe_failure(std::current_exception());
    let_rank_0_speak(me, kPatience);  // what all have met is said once
    log::error("{}", failure_line(failure, me, world->host(), whereabouts.step));
    world->abort(failure.exit_code);
    return failure.exit_code;  // which abort never does
  }
}

}  // namespace athanor
