#include "run/checkpoint_memory.h"

#include <map>

#include "base/error.h"
#include "base/files.h"
#include "base/process.h"
#include "base/text.h"
#include "ops/device_traits.h"
#include "plan/rank_memory.h"

namespace athanor::inline run {
namespace {

// The bytes of the pieces that the ranks of this host write.
double staging_bytes(const RunConfig& config, const comm::World& world, const Layout& layout) {
  const OptimizerPlan optimizers = plan_optimizers(config.optimizer);
  double bytes = 0;
  for (int rank = 0; rank < world.size(); ++rank) {
    if (world.hosts()[static_cast<size_t>(rank)] == world.host())
      bytes += count_staging_bytes(config, layout, rank, optimizers);
  }
  return bytes;
}

// What the training step takes of this host's memory, on a CPU with the copies to write checkpoints from.
// Ranks of one stage take about the same, and a step of one of them is played.
double step_bytes(const RunConfig& config, const comm::World& world, const Layout& layout) {
  std::map<int, double> of_stage;
  double bytes = 0;
  for (int rank = 0; rank < world.size(); ++rank) {
    if (world.hosts()[static_cast<size_t>(rank)] != world.host()) continue;
    const auto [found, is_new] = of_stage.try_emplace(layout.coordinate(rank, Axis::kPipeline));
    if (is_new) found->second = memory_if_known(config, layout, rank).total();
    bytes += found->second;
  }
  return bytes;
}

// What the local checkpoints of this host's nodes will take of its memory in addition to what they take now.
double local_bytes(const LocalStart& local, double staging) {
  if (!local.place || !is_in_memory(local.place->run().local_dir)) return 0;
  double bytes = staging * static_cast<double>(local_copies(local.nodes.size()));
  for (const LocalStore& store : list_stores(local.place->run())) bytes -= static_cast<double>(store.num_bytes());
  return std::max(0.0, bytes);
}

}  // namespace

void check_checkpoint_memory(const RunConfig& config, const comm::World& world, const LocalStart& local,
                             at::Device device) {
  const Layout layout(config, world.size());
  const double staging = staging_bytes(config, world, layout), kept = local_bytes(local, staging);
  const ops::DeviceTraits traits = ops::traits_of(device);
  const double copies = traits.staging_on_host * staging;
  if (kept + copies == 0) return;
  const double step = traits.step_on_host > 0 ? traits.step_on_host * step_bytes(config, world, layout) : 0;
  std::vector<std::string> parts, remedies;
  if (step > 0) parts.push_back(format_bytes(step) + " to compute");
  if (kept > 0) {
    parts.push_back(format_bytes(kept) + " for local checkpoints");
    remedies.emplace_back("let checkpoint.local_dir be on a disk, or set checkpoint.local_interval to 0");
  }
  if (copies > 0) {
    parts.push_back(format_bytes(copies) + " for copies to write checkpoints from");
    remedies.emplace_back("set checkpoint.async to false");
  }
  const auto free = static_cast<double>(available_memory_bytes());
  ATHANOR_CHECK(step + kept + copies <= free, "host {} has {} of memory free, and this run needs {} there: {}; {}",
                world.host(), format_bytes(free), format_bytes(step + kept + copies), join(parts),
                join(remedies, "; "));
}

}  // namespace athanor::inline run
