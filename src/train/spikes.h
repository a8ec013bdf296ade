#pragma once
// Finds steps whose loss or gradient norm is far above that of the steps before: their batch, or the optimizer's state,
// is at fault, and an update with them may cost hundreds of steps. A loss or norm that stays high is no such step, and
// becomes the usual one (train/usual_level.h).
//
// What was seen so far is a part of the state of a run: checkpoints have it, so that a run that is interrupted decides
// as one that is not, also between two spikes.

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "train/step_guard.h"
#include "train/usual_level.h"

namespace athanor::inline train {

/// What the numbers of a step show.
struct SpikeFindings {
  std::string spike;  ///< what is beyond the limits, with the numbers that they come from; "" if nothing is
  std::vector<LevelRise> rises;
};

inline constexpr const char* kSpikes = "spikes";  ///< its name in the state of a checkpoint

class Spikes {
 public:
  static constexpr size_t kHistory = 2 * UsualLevel::kWindow;  ///< steps that can still count

  /// Returns the limits for the next step, means over targets; infinite as long as there are too few steps.
  StepLimits limits() const { return {loss_.limit(), norm_.limit()}; }
  /// Takes the numbers of a step, whether it was applied or not.
  SpikeFindings take(int64_t step, double loss, double grad_norm);
  /// Whether nothing was taken yet.
  bool is_empty() const { return loss_.recent.empty() && norm_.recent.empty(); }

  /// To be called when update `step` is a spike and the run goes back to before it.
  void roll_back_before(int64_t step) { repeated_until_ = std::max(repeated_until_, step); }
  /// Takes over what the run knew before it was rolled back to this: the spikes in a row. Usual steps that come again
  /// do not end the row, or a spike that comes again at the same step would be a single one each time.
  void continue_after(const Spikes& rolled_back);

  /// What checkpoints store.
  nlohmann::json to_json() const;
  /// @param where  the checkpoint, for messages. @throws CheckpointError if it is not what to_json gives.
  static Spikes from_json(const nlohmann::json& stored, const std::string& where);

 private:
  UsualLevel loss_{.name = "loss", .least = 1.05, .tells_slow_rises = true};
  UsualLevel norm_{.name = "gradient norm", .least = 2};  // healthy ones rise slowly, and by any factor
  int64_t repeated_until_ = 0;                            // the steps before this one are repeated
};

/// Returns what the metrics of a run tell of the steps after `first`, up to `last`, as Spikes::take would have taken
/// them: for checkpoints of versions that did not store it. Lines that cannot be read are ignored. @throws nothing.
/// @param metrics_lines  from last_step_numbers (record/step_lines.h) for Spikes::kHistory.
Spikes spikes_of_history(const std::string& metrics_lines, int64_t first, int64_t last);

}  // namespace athanor::inline train
