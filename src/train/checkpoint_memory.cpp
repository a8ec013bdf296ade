#include "train/checkpoint_memory.h"

#include "base/error.h"
#include "base/files.h"
#include "base/process.h"
#include "base/text.h"
#include "layout/memory.h"

namespace athanor {
namespace {

// What the local checkpoints of this host's nodes will take of its memory in addition to what they take now.
double local_bytes(const comm::World& world, const LocalStart& local, double staging_bytes) {
  if (!local.place || !is_in_memory(local.place->run().local_dir)) return 0;
  double bytes = staging_bytes * static_cast<double>(local_copies(local.nodes));
  for (int node = 0; node < local.nodes.size(); ++node) {
    const auto rank = static_cast<size_t>(local.nodes.leader_of(node));
    if (world.hosts()[rank] == world.host())
      bytes -= static_cast<double>(LocalStore(local.place->run(), local.nodes.name_of(node)).num_bytes());
  }
  return std::max(0.0, bytes);
}

}  // namespace

void check_checkpoint_memory(const RunConfig& config, const comm::World& world, const LocalStart& local,
                             at::Device device) {
  const Layout layout(config, world.size());
  const OptimizerPlan optimizers = plan_optimizers(config.optimizer);
  double staging = 0, step = 0;
  for (int rank = 0; rank < world.size(); ++rank) {
    if (world.hosts()[static_cast<size_t>(rank)] != world.host()) continue;
    staging += count_staging_bytes(config, layout, rank, optimizers);
    if (device.is_cpu())
      step += estimate_train_memory(config, config.data.seq_len, layout, rank, {at::get_num_threads()}).total();
  }
  const double kept = local_bytes(world, local, staging), copies = device.is_cpu() ? 0 : staging;
  const auto free = static_cast<double>(available_memory_bytes());
  if (kept + copies == 0) return;
  ATHANOR_CHECK(step + kept + copies <= free,
                "host {} has {} of memory free, and this run needs {} there: {}{} for local checkpoints, {} for copies "
                "to write checkpoints from; let checkpoint.local_dir be on a disk, set checkpoint.local_interval to 0, "
                "or set checkpoint.async to false",
                world.host(), format_bytes(free), format_bytes(step + kept + copies),
                device.is_cpu() ? fmt::format("{} to compute, ", format_bytes(step)) : "", format_bytes(kept),
                format_bytes(staging));
}

}  // namespace athanor
