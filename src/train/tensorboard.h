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
#include "train/metrics.h"

namespace athanor {

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

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  AppendFile file_;
};

/// Writes the metrics of a step, in groups: loss/, optimizer/, data/ (tokens), router/, ranks/, communication/ (10^6
/// bytes, seconds), throughput/, time/ (seconds), memory/ (GiB).
void write_step(TensorBoardWriter& writer, const StepMetrics& metrics);

}  // namespace athanor
