#pragma once
// The metrics of a run on disk: after each step a line in metrics.jsonl and an event for TensorBoard.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>

#include "base/append_file.h"
#include "metrics/metrics.h"
#include "metrics/tensorboard.h"

namespace athanor::inline metrics {

/// Opens run_dir/metrics.jsonl and, if `tensorboard`, a new event file in run_dir/tensorboard, and continues after
/// `resume_step`. Only the first rank has one.
///
/// A run that was cut off repeats the steps after its last checkpoint. Their earlier lines are dropped, a torn last
/// line too, and their events are superseded, so that every step is recorded once.
///
/// A run is never stopped for a record that cannot be written: if a file cannot be opened or written (a full disk), the
/// log warns once and the step is missing there; later steps are tried again. Nothing here throws.
class MetricsLog {
 public:
  /// @param hyperparameters  what TensorBoard shows of the run's configuration.
  MetricsLog(std::filesystem::path run_dir, bool tensorboard, int64_t resume_step,
             std::vector<Hyperparameter> hyperparameters = {});
  /// Shows TensorBoard the scores of the evaluation with which an attempt begins. metrics.jsonl has lines only for
  /// steps that were done, so these scores are not in it.
  /// @param step  the one that was done last; 0 before the first.
  void write_start(const EvaluationScores& scores, int64_t step);
  /// Adds the metrics of one step, the next one.
  void write(const StepMetrics& metrics);

 private:
  void open_lines();
  void open_events(int64_t next_step);
  void attempt(const std::function<void()>& write);

  std::filesystem::path run_dir_;
  bool wants_tensorboard_;
  int64_t resume_step_;
  std::vector<Hyperparameter> hyperparameters_;
  bool warned_ = false;
  std::unique_ptr<AppendFile> lines_;          // null until the file could be opened
  std::unique_ptr<TensorBoardWriter> events_;  // null until the file could be opened
};

/// Returns true if continuing after `step` would drop lines of `metrics`, a metrics.jsonl. @throws IoError.
bool tells_more_than(const std::filesystem::path& metrics, int64_t step);

}  // namespace athanor::inline metrics
