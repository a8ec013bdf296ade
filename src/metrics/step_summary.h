#pragma once
// Makes the metrics of each step: the results of the step, and what was measured of it.

#include "dataset/loader.h"
#include "metrics/metrics.h"
#include "metrics/rank_metrics.h"
#include "ops/gemm_peak.h"
#include "train/run_context.h"
#include "train/train_state.h"
#include "train/train_step.h"

namespace athanor::inline metrics {

class StepSummary {
 public:
  /// Measures the GEMM peak if the configuration does not set it, on the present number of threads, and logs it.
  /// Collective over the world. Both references must outlive this object.
  /// @param num_stages  number of training phases, or of the sizes of a batch ramp: if there are several phases,
  ///                    StepMetrics::stage is set.
  StepSummary(const TrainState& state, Mesh& mesh, size_t num_stages);

  /// Returns the metrics of a step that has been taken, except threads, seconds_left and validation. Times, memory and
  /// traffic are those of this rank. Sends nothing.
  /// @param at      gives the attempt.
  /// @param data_s  seconds that the step waited for `batch`; they are part of `step_s`.
  StepMetrics summarize(const StepReport& report, const Batch& batch, const RunContext& at, double data_s,
                        double step_s);

 private:
  void describe_ranks(const StepReport& report, StepMetrics& metrics);
  ops::GemmPeak measure_peak();

  const TrainState& state_;
  Mesh& mesh_;
  TrafficMeter traffic_;
  NoiseScale noise_scale_;
  bool names_stages_, warned_of_imbalance_ = false;
  int threads_;              // number that the rank may have; steps may be tried on fewer
  ops::GemmPeak gemm_peak_;  // rate of all ranks together
  int64_t num_parameters_;
  struct {
    int64_t sequences = 0, seq_len = 0;
    double of_model = 0, executed = 0;
  } flops_;  // the shape of the last batch
};

}  // namespace athanor::inline metrics
