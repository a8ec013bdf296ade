#include "train/verify/verify.h"

#include "base/launched.h"
#include "cli/core.h"
#include "cli/core/in_world.h"
#include "config/toml_reader.h"
#include "ops/cpu_allocator.h"

namespace athanor {
namespace {

comm::WorldOptions world_options(const RunConfig& config) {
  comm::WorldOptions options;
  options.timeout = std::chrono::milliseconds(static_cast<int64_t>(1000 * config.parallelism.collective_timeout_s));
  options.check = config.parallelism.check_collectives;
  options.ranks_per_node = static_cast<int>(config.topology.ranks_per_node);
  options.nodes_per_supernode = static_cast<int>(config.topology.nodes_per_supernode);
  return options;
}

}  // namespace
}  // namespace athanor

ATHANOR_CORE_ENTRY(verify) {
  using namespace athanor;
  const auto& given = *static_cast<const VerifyArguments*>(arguments);
  ops::install_caching_cpu_allocator();
  if (!given.reference.empty()) {
    run_reference(given.reference, given.draw);
    return 0;
  }
  // What does not fit is told before anybody communicates.
  const RunConfig small = make_small_run(load_run_config(given.config_file, given.overrides), launched().size,
                                         {given.steps, given.dtype, given.keep_size});
  return in_world(world_options(small), [&](comm::World& world, Whereabouts&) {
    return run_verify(small, {given.twice, given.keep}, world);
  });
}
