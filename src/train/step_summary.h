#pragma once
// What is measured of a run's steps, beside what they compute: a line of metrics for each.

#include "data/loader.h"
#include "train/gemm_peak.h"
#include "train/metrics.h"
#include "train/rank_metrics.h"
#include "train/train_state.h"
#include "train/train_step.h"
#include "train/whereabouts.h"

namespace athanor {

class StepSummary {
 public:
  /// Measures the GEMM peak if the configuration does not say it, on as many threads as there are now, and says which
  /// it is. Collective over the world. Both outlive this.
  /// @param num_stages  that the run has: a step's line names its own where there are several.
  StepSummary(const TrainState& state, Mesh& mesh, size_t num_stages);

  /// Times are the step's own on this rank. Collective over the world.
  StepMetrics summarize(const StepReport& report, const Batch& batch, const Whereabouts& at, double data_s,
                        double step_s);

 private:
  void describe_ranks(const StepReport& report, StepMetrics& metrics);
  GemmPeak measure_peak();

  const TrainState& state_;
  Mesh& mesh_;
  TrafficMeter traffic_;
  bool names_stages_, warned_of_imbalance_ = false;
  int threads_;         // that the rank may have; steps may be tried on fewer
  GemmPeak gemm_peak_;  // of all ranks together
};

}  // namespace athanor
