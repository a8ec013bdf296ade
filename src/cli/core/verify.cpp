#include "train/verify/verify.h"

#include "arch/layout.h"
#include "base/launched.h"
#include "cli/core.h"
#include "cli/core/in_world.h"
#include "config/toml_reader.h"
#include "ops/cpu_allocator.h"
#include "train/start.h"

ATHANOR_CORE_ENTRY(verify) {
  using namespace athanor;
  const auto& given = *static_cast<const VerifyArguments*>(arguments);
  ops::install_caching_cpu_allocator();
  if (!given.reference.empty()) {
    run_reference(given.reference, given.draw, static_cast<uint64_t>(given.draws));
    return 0;
  }
  // What does not fit is told before anybody communicates.
  const int ranks = launched().size;
  const RunConfig config = load_run_config(given.config_file, given.overrides,
                                           [&](const RunConfig& read) { return find_layout_faults(read, ranks); });
  refuse_misfits(config, ranks);
  ATHANOR_CHECK(
      ranks > 1,
      "verify: this is one rank, and one rank is what a layout is compared with; there is nothing to compare. "
      "Start it as the job will be started, or smaller: mpirun -n 4 athanor verify {}",
      given.config_file);
  std::vector<RunConfig> smalls;
  for (const std::string& dtype : types_to_verify(config, given.dtype))
    smalls.push_back(make_small_run(config, ranks, {given.steps, dtype, given.keep_size}));
  return in_world(world_options(smalls.front()), [&](comm::World& world, Whereabouts&) {
    return run_verify(smalls, {given.twice, given.draws, given.keep}, world);
  });
}
