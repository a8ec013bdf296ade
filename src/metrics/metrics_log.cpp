#include "metrics/metrics_log.h"

#include <exception>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "record/step_lines.h"

namespace athanor::inline metrics {
namespace fs = std::filesystem;
namespace {

// The file is truncated rather than rewritten: one system call, which happens completely or not at all, and needs no
// room on a full disk.
void drop_redone_lines(const fs::path& path, int64_t resume_step) {
  if (!fs::is_regular_file(path)) return;
  const size_t size = fs::file_size(path), keep = bytes_up_to_step(MappedFile(path).text(), resume_step);
  if (keep == size) return;
  std::error_code error;
  fs::resize_file(path, keep, error);
  if (error) throw IoError("cannot shorten " + path.string() + ": " + error.message(), error.value());
}

}  // namespace

bool tells_more_than(const fs::path& metrics, int64_t step) {
  if (!fs::is_regular_file(metrics) || fs::file_size(metrics) == 0) return false;
  const MappedFile file(metrics);
  return bytes_up_to_step(file.text(), step) < file.text().size();
}

MetricsLog::MetricsLog(fs::path run_dir, bool tensorboard, int64_t resume_step,
                       std::vector<Hyperparameter> hyperparameters)
    : run_dir_(std::move(run_dir)), wants_tensorboard_(tensorboard), resume_step_(resume_step),
      hyperparameters_(std::move(hyperparameters)) {
  attempt([this] { open_lines(); });
  if (wants_tensorboard_) attempt([this] { open_events(resume_step_ + 1); });
}

void MetricsLog::open_lines() {
  const fs::path path = run_dir_ / "metrics.jsonl";
  drop_redone_lines(path, resume_step_);
  lines_ = std::make_unique<AppendFile>(path);
}

void MetricsLog::open_events(int64_t next_step) {
  events_ = std::make_unique<TensorBoardWriter>(run_dir_ / "tensorboard", next_step);
  if (!hyperparameters_.empty()) events_->hyperparameters(hyperparameters_);
}

void MetricsLog::write(const StepMetrics& metrics) {
  attempt([&] {
    if (!lines_) open_lines();
    lines_->append(to_json_line(metrics) + "\n");
  });
  if (!wants_tensorboard_) return;
  attempt([&] {
    if (!events_) open_events(metrics.step);
    write_step(*events_, metrics);
  });
}

void MetricsLog::write_start(const EvaluationScores& scores, int64_t step) {
  if (!wants_tensorboard_) return;
  attempt([&] {
    if (!events_) open_events(step + 1);
    write_scores(*events_, scores, step);
  });
}

void MetricsLog::attempt(const std::function<void()>& write) {
  try {
    write();
  } catch (const std::exception& error) {  // an IoError, or an error of std::filesystem
    if (!std::exchange(warned_, true))
      log::warn("{}: the run continues, and steps are missing from its metrics until this is corrected", error.what());
  }
}

}  // namespace athanor::inline metrics
