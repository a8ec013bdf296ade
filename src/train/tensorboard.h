#pragma once
// Event files that TensorBoard shows, written without TensorFlow: a few protobuf messages, encoded by hand.

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

/// One event file in a folder. Files of earlier runs stay; TensorBoard reads them in the order of their names.
///
/// Nothing is buffered: what a call wrote survives the process. All of it throws IoError where the disk refuses.
class TensorBoardWriter {
 public:
  /// Starts events.out.tfevents.<time>.<host>.<pid>, `time` (s) being later than that of any file there.
  /// @param first_step the step that comes next: what earlier files say of it and of later steps is superseded.
  TensorBoardWriter(const std::filesystem::path& folder, int64_t first_step);

  void scalar(std::string_view tag, double value, int64_t step);
  /// Several tags of one step, in one record.
  void scalars(const std::vector<std::pair<std::string, double>>& tagged, int64_t step);

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  AppendFile file_;
};

/// All that a step says, in groups: loss/, optimizer/, router/, ranks/, communication/, throughput/, time/ (seconds),
/// memory/ (GiB).
void write_step(TensorBoardWriter& writer, const StepMetrics& metrics);

}  // namespace athanor
