#include "watch/probe.h"

#include <fmt/core.h>

#include "cli/core.h"
#include "layout/layout.h"
#include "ops/cpu_allocator.h"
#include "run/in_world.h"
#include "run/rank_devices.h"
#include "run/same_settings.h"

ATHANOR_CORE_ENTRY(probe) {
  using namespace athanor;
  const auto& given = *static_cast<const ProbeArguments*>(arguments);
  ops::install_caching_cpu_allocator();
  return in_world({}, [&](comm::World& world, RunContext&) {
    const at::Device device = agree_on_devices(given.device, "--device", world);
    Mesh mesh(Layout(RunConfig(), world.size()), world);
    mesh.use(device);
    const Probe measured = measure_probe(mesh, device, given.folder);
    if (!mesh.is_first()) return 0;
    const auto slow = find_slow_parts(measured);
    if (given.json)
      fmt::print("{}\n", probe_json(measured, slow, world.hosts(), 0, 0, "asked"));
    else
      fmt::print("{}", describe_probe(measured, slow, world.hosts()));
    return 0;
  });
}
