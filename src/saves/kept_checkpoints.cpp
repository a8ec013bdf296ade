#include "saves/kept_checkpoints.h"

#include <algorithm>
#include <numeric>

#include "arch/inventory.h"
#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/text.h"
#include "checkpoint/listing.h"
#include "checkpoint/rotation.h"
#include "config/precision.h"
#include "layout/memory.h"
#include "layout/shards.h"
#include "record/run_folder.h"

namespace athanor::inline saves {
namespace {

// Multiples of `interval` among the steps after `first` up to `last`.
int64_t num_due(int64_t first, int64_t last, int64_t interval) {
  return interval > 0 && last > first ? last / interval - first / interval : 0;
}

// Full checkpoints that are there and that the run will remove as it writes its own.
double removable_bytes(const RunConfig& config) {
  double bytes = 0;
  for (const StepFolder& each : list_checkpoints(RunFolder{config.train.run_dir}.checkpoints())) {
    const bool stays = config.checkpoint.keep_every > 0 && each.step % config.checkpoint.keep_every == 0;
    if (!stays) bytes += static_cast<double>(bytes_below(each.path));
  }
  return bytes;
}

}  // namespace

bool saves_nothing(const CheckpointConfig& config) {
  return config.interval.is_off() && config.model_interval == 0 && config.interval_minutes == 0;
}

KeptCheckpoints count_kept_checkpoints(const RunConfig& config, const Layout& layout, int64_t step) {
  const CheckpointConfig& saves = config.checkpoint;
  const int64_t last = config.train.steps;
  KeptCheckpoints kept;
  if (step >= last) return kept;
  if (!saves.interval.is_off()) {
    const auto parts = count_written_bytes(config, layout, saves.writers);
    kept.full_bytes = std::accumulate(parts.begin(), parts.end(), 0.0);
    const bool is_counted = !saves.interval.is_auto && saves.interval_minutes == 0;
    const int64_t all = num_due(step, last, saves.interval.count) +
                        (is_counted && last % saves.interval.count == 0 ? 0 : 1);  // the last step is saved anyway
    kept.num_full = is_counted ? std::min(saves.keep, all) : saves.keep;
    // Those that are never removed, beyond the newest.
    if (saves.keep_every > 0 && is_counted) {
      const int64_t both = std::lcm(saves.interval.count, saves.keep_every);
      const int64_t newest = std::max(step, last - (saves.keep - 1) * saves.interval.count - 1);
      kept.num_full += num_due(step, newest, both);
    }
  }
  if (saves.model_interval > 0) {
    kept.num_models = num_due(step, last, saves.model_interval) + (last % saves.model_interval == 0 ? 0 : 1);
    kept.model_bytes = static_cast<double>(count_parameters(config.model) * bytes_of(precision_of(config).model));
  }
  return kept;
}

std::string describe_short_disk(const KeptCheckpoints& kept, double free_bytes, const std::string& run_dir) {
  if (kept.total_bytes() <= free_bytes) return "";
  std::vector<std::string> parts, remedies;
  if (kept.num_full > 0) {
    parts.push_back(fmt::format("{} full of {}", kept.num_full, format_bytes(kept.full_bytes)));
    remedies.emplace_back("lower checkpoint.keep");
  }
  if (kept.num_models > 0) {
    parts.push_back(fmt::format("{} model-only of {}", kept.num_models, format_bytes(kept.model_bytes)));
    remedies.emplace_back("raise checkpoint.model_interval");
  }
  remedies.emplace_back("free some space");
  return fmt::format(
      "the disk of {} has {} free, and the checkpoints that this run keeps take about {} ({}): a save for which there "
      "is "
      "no room is lost; {}",
      run_dir, format_bytes(free_bytes), format_bytes(kept.total_bytes()), join(parts), join(remedies, ", or "));
}

void report_kept_checkpoints(const RunConfig& config, const Layout& layout, int64_t step) {
  if (saves_nothing(config.checkpoint)) {
    log::warn(
        "this run saves nothing: checkpoint.interval and checkpoint.model_interval are 0, so that its weights are lost "
        "when it ends or is stopped");
    return;
  }
  const std::string& run = config.train.run_dir;
  try {
    const double free = static_cast<double>(free_disk_bytes(run)) + removable_bytes(config);
    const std::string told = describe_short_disk(count_kept_checkpoints(config, layout, step), free, run);
    if (!told.empty()) log::warn("{}", told);
  } catch (const IoError& error) {  // what cannot be told is no reason to end a run
    log::warn("whether the disk has room for the checkpoints is not known: {}", error.what());
  }
}

}  // namespace athanor::inline saves
