#pragma once
// The progress of a run on a terminal, which `athanor status --watch` shows below what its ranks are doing.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>

namespace athanor::inline cli {

class RunProgress {
 public:
  explicit RunProgress(std::filesystem::path run) : run_(std::move(run)) {}

  /// Returns lines of text: the last step with the time that is left, the load of the busiest expert of each layer, and
  /// the last events. The curve of the loss takes the rows that are left. A run without a step has nothing to show.
  /// Files that cannot be read are left out. The metrics are read again if they have grown, and in at most a tenth of
  /// the time.
  /// @param rows_above  rows of the terminal that are taken.
  std::string text(ptrdiff_t rows_above);

 private:
  using Clock = std::chrono::steady_clock;
  std::string read(ptrdiff_t rows_above) const;

  std::filesystem::path run_;
  std::string last_;
  uintmax_t size_ = 0;
  Clock::time_point next_read_ = Clock::time_point::min();
};

}  // namespace athanor::inline cli
