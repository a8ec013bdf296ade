#pragma once
// Writes event files for TensorBoard without TensorFlow: a few protobuf messages, encoded by hand.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/append_file.h"
#include "config/run_config.h"
#include "metrics/metrics.h"

namespace athanor::inline metrics {

/// A field of the configuration, and its value as TOML.
using Hyperparameter = std::pair<std::string, std::string>;

/// Returns the fields of a configuration that TensorBoard shows next to the results: those of model, data, training,
/// optimizer, routing and layout, without paths.
std::vector<Hyperparameter> hyperparameters_of(const RunConfig& config);

/// An event file in a folder. Files of earlier attempts stay; TensorBoard reads the files in the order of their names.
///
/// Nothing is buffered: what a call wrote survives the process. Every call throws IoError if the disk refuses the
/// write.
class TensorBoardWriter {
 public:
  /// Makes the folder if it is missing, and starts events.out.tfevents.<time>.<host>.<pid> in it. `time`, in seconds
  /// since 1970, is later than that of any file in the folder.
  /// @param first_step  the next step: this file supersedes what earlier files hold for it and for later steps.
  TensorBoardWriter(const std::filesystem::path& folder, int64_t first_step);

  void scalar(std::string_view tag, double value, int64_t step);
  /// Writes several tags of one step, in one record.
  void scalars(const std::vector<std::pair<std::string, double>>& tagged, int64_t step);

  /// Writes histograms of one step, in one record. Their least and largest values are the edges of their outermost
  /// bins.
  void histograms(const std::vector<std::pair<std::string, const Histogram*>>& tagged, int64_t step);
  /// Writes what TensorBoard's HPARAMS tab shows of the run. To be called once, before the first step.
  void hyperparameters(const std::vector<Hyperparameter>& hyperparameters);

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  AppendFile file_;
};

/// Writes the scores of an evaluation, as eval/TASK/METRIC.
void write_scores(TensorBoardWriter& writer, const EvaluationScores& scores, int64_t step);

/// Writes the metrics of a step, in groups: loss/, eval/, optimizer/, data/ (tokens), router/, layers/, ranks/,
/// communication/ (10^6 bytes, seconds), throughput/, time/ (seconds), memory/ (GiB); and the histograms of layers, if
/// there are any.
void write_step(TensorBoardWriter& writer, const StepMetrics& metrics);

}  // namespace athanor::inline metrics
