#include "arch/layout.h"
#include "base/launched.h"
#include "base/signals.h"
#include "cli/core.h"
#include "cli/core/in_world.h"
#include "config/toml_reader.h"
#include "ops/cpu_allocator.h"
#include "train/run.h"
#include "train/start.h"

ATHANOR_CORE_ENTRY(train) {
  using namespace athanor;
  const BrokenPipeGuard pipes;
  const auto& given = *static_cast<const TrainArguments*>(arguments);
  const RunConfig config = load_run_config(given.config_file, given.overrides, [](const RunConfig& read) {
    return find_layout_faults(read, launched().size);
  });
  refuse_misfits(config, launched().size);
  ops::install_caching_cpu_allocator();
  return in_world(world_options(config), [&](comm::World& world, Whereabouts& whereabouts) {
    return run_training(config, world, whereabouts);
  });
}
