#pragma once
// Forward and backward of the microbatches of a step.

#include <optional>
#include <span>

#include "optim/noise_probe.h"
#include "parallel/pipeline.h"
#include "train/step_report.h"
#include "train/stopwatches.h"
#include "train/train_state.h"

namespace athanor::inline train {

/// Looks at gradients before they are summed, while it exists, in the steps of metrics.noise_scale_interval.
class NoiseMeasurement : public BucketObserver {
 public:
  NoiseMeasurement(TrainState& state, int64_t step);
  ~NoiseMeasurement() override;
  NoiseMeasurement(const NoiseMeasurement&) = delete;
  NoiseMeasurement& operator=(const NoiseMeasurement&) = delete;

  void before_sum(const Bucket& bucket) override { probe_->add(bucket); }
  /// To be called after each action of the schedule.
  void ended(const Action& action);
  /// To be called when the gradients have been summed. Collective as NoiseProbe::finish. Undefined in other steps.
  Tensor finish() { return probe_ ? probe_->finish() : Tensor(); }

 private:
  GradientReducer& reducer_;
  std::optional<NoiseProbe> probe_;
};

/// What is measured of the microbatches of a step.
struct MicrobatchMeasurements {
  StepReport& report;  ///< gets the times
  StepStopwatch& watch;
  NoiseMeasurement& noise;
};

/// Runs forward and backward of every microbatch; the gradients of the last one are summed while it goes back.
/// Collective over the state's world.
/// @param microbatches  as many as the schedule has, on the model's device.
/// @param measured      null: nothing is.
/// @return the parts of this rank's stages.
LossTotals run_microbatches(TrainState& state, std::span<const Microbatch> microbatches,
                            const MicrobatchMeasurements* measured = nullptr);

}  // namespace athanor::inline train
