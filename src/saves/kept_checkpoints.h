#pragma once
// What a run will have saved at its end, as far as its configuration tells: how many checkpoints, their bytes, and
// whether its disk has room for them.

#include <cstdint>
#include <string>

#include "config/run_config.h"
#include "layout/layout.h"

namespace athanor::inline saves {

/// True if no step of the run is ever saved as a full checkpoint or a model.
bool saves_nothing(const CheckpointConfig& config);

/// The checkpoints that lie in the run's folder at once, when it has most.
struct KeptCheckpoints {
  int64_t num_full = 0, num_models = 0;
  double full_bytes = 0, model_bytes = 0;  ///< the bytes of each one

  double total_bytes() const {
    return static_cast<double>(num_full) * full_bytes + static_cast<double>(num_models) * model_bytes;
  }
};

/// Counts those of the steps from `step` to the run's last one. What checkpoint.interval_minutes, an automatic interval
/// and signals add is not known, except that checkpoint.keep bounds it.
KeptCheckpoints count_kept_checkpoints(const RunConfig& config, const Layout& layout, int64_t step);

/// Returns a warning if the bytes that are free, with those that are removed in the meantime, are too few; "" if not.
std::string describe_short_disk(const KeptCheckpoints& kept, double free_bytes, const std::string& run_dir);

/// Logs what a start should tell of the checkpoints to come: that nothing is saved, or that the disk is too small.
/// @param step  after which the run continues.
void report_kept_checkpoints(const RunConfig& config, const Layout& layout, int64_t step);

}  // namespace athanor::inline saves
