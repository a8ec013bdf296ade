#pragma once
// One step of a run after the other: with the batch that it waits for, what looks at it, and its metrics.

#include <chrono>
#include <memory>
#include <optional>

#include "metrics/layer_statistics.h"
#include "metrics/step_summary.h"
#include "metrics/step_trace.h"
#include "run/stage_batches.h"
#include "run/start.h"
#include "run/thread_trial.h"
#include "saves/run_saves.h"
#include "watch/device_watch.h"
#include "watch/rehearsals.h"
#include "watch/step_watches.h"

namespace athanor::inline run {

/// What a step gave to the run.
struct TakenStep {
  std::optional<StepMetrics> metrics;  ///< nothing if the step was not applied
  std::optional<RollBack> roll_back;   ///< the run goes back to its newest checkpoint
};

class StepRunner {
 public:
  /// The references must outlive this. Collective over the state's mesh.
  StepRunner(TrainState& state, Mesh& mesh, RunContext& at, const StartedRun& started, StageBatches& batches,
             RunSaves& saves);
  ~StepRunner() { at_.phases.times = nullptr; }
  StepRunner(const StepRunner&) = delete;
  StepRunner& operator=(const StepRunner&) = delete;

  /// Takes the next step of the run. Collective. @throws as its parts: data that cannot be read, numbers that are not
  /// finite, memory that has changed.
  TakenStep take();
  /// To be called when all that follows a step is done.
  void end_step() { trace_.end(); }
  /// To be called when a training phase begins, whose steps take other times.
  void enter_stage() { threads_.restart(); }
  /// To be called when a complete run ends.
  void tell_at_end(bool is_complete) const;

  StepWatches& watches() { return watches_; }
  /// The number of threads that has been the fastest so far.
  int kept_threads() const { return threads_.kept(); }
  /// Whether the ranks of this host share cores (share_cores).
  bool shares_cores() const { return shares_cores_; }

 private:
  std::shared_ptr<Rehearsals> rehearse();
  StepReport compute(const Batch& batch);
  std::shared_ptr<LayerStatistics> begin_statistics();
  void try_threads(const StepReport& report);
  void check_first_numbers(const StepReport& report, const Batch& batch) const;
  std::optional<double> seconds_left();

  using Clock = std::chrono::steady_clock;
  TrainState& state_;
  Mesh& mesh_;
  RunContext& at_;
  StageBatches& batches_;
  RunSaves& saves_;
  int64_t first_step_;  // updates before this attempt
  bool from_scratch_;
  StepSummary summary_;
  bool shares_cores_;
  ThreadTrial threads_;
  std::shared_ptr<Rehearsals> rehearsals_;  // null without [faults]
  StepWatches watches_;
  std::optional<DeviceWatch> device_watch_;
  std::shared_ptr<PhaseTimes> times_;
  RankTimesGatherer rank_times_;
  StepTrace trace_;
  std::optional<LayerMetrics> layers_;  // set in a step that shows them
  Clock::time_point first_step_ended_;
  int64_t first_step_tokens_ = 0;  // seen by then
};

}  // namespace athanor::inline run
