#include "train/verify/verify.h"

#include "arch/layout.h"
#include "base/launched.h"
#include "cli/core.h"
#include "cli/core/in_world.h"
#include "config/dump.h"
#include "config/toml_reader.h"
#include "ops/cpu_allocator.h"
#include "train/start.h"

ATHANOR_CORE_ENTRY(verify) {
  using namespace athanor;
  const auto& given = *static_cast<const VerifyArguments*>(arguments);
  ops::install_caching_cpu_allocator();
  const Reference reference = parse_reference(given.reference);
  if (!given.as_reference.empty()) {
    run_reference(given.as_reference, given.draw, reference);
    return 0;
  }
  // What does not fit is told before anybody communicates.
  const int ranks = launched().size;
  const RunConfig config = load_run_config(given.config_file, given.overrides,
                                           [&](const RunConfig& read) { return find_layout_faults(read, ranks); });
  refuse_misfits(config, ranks);
  const RunConfig small = make_small_run(config, ranks, {given.steps, given.dtype, given.keep_size, given.keep_depth});
  VerifyRequest request{reference, {}, given.twice, given.keep};
  if (!given.then.empty()) {
    request.then = parse_run_config(dump_run_config(small, false), "--then", given.then,
                                    [&](const RunConfig& read) { return find_layout_faults(read, ranks); });
  }
  return in_world(world_options(small),
                  [&](comm::World& world, Whereabouts&) { return run_verify(small, request, world); });
}
