#include "run/in_world.h"

#include "base/failure.h"
#include "base/log.h"
#include "record/last_words.h"

namespace athanor::inline run {
namespace {

// Errors that all ranks find together reach all of them within a second, as the ranks compute in step.
constexpr std::chrono::milliseconds kPatience{1500};

}  // namespace

int in_world(const comm::WorldOptions& options, const std::function<int(comm::World&, RunContext&)>& body) {
  const auto world = comm::World::open(options);
  RunContext context;
  context.phases.board = options.board;
  const Launched me = launched();
  try {
    return body(*world, context);
  } catch (...) {
    const Failure failure = describe_failure(std::current_exception(), context.in_run());
    leave_last_words(context.moment(), world->rank(), world->host(), failure);
    const bool alone = world->size() == 1 || me.size == 1;
    if (!alone) let_rank_0_speak(me, kPatience);  // an error that all ranks found is printed once
    log::error("{}", failure_line(failure, me, world->host(), context.step));
    if (!alone) world->abort(failure.exit_code);
    if (me.size > 1) end_job(me, failure.exit_code);
    return failure.exit_code;
  }
}

}  // namespace athanor::inline run
