#pragma once
// Notices that the numbers of a run mean nothing any more although they are finite: a gradient that is exactly zero, or
// a loss that does not change in any bit. Weights that have become too large saturate every softmax, and nothing is
// learnt from there on.

#include <cstdint>
#include <optional>
#include <string>

namespace athanor::inline watch {

class StuckNumbers {
 public:
  static constexpr int64_t kSteps = 20;

  /// Takes the numbers of a step that was applied. Returns a line if its gradient is exactly zero, or its loss is that
  /// of the kSteps steps before; "" if not, or if a line has told it and kSteps steps without it have not come since.
  /// @param num_targets  tokens that have a loss.
  std::string took(int64_t step, double loss, double grad_norm, int64_t num_targets);
  /// Returns a line for the end of a run whose last step was such a one; "" if it was none.
  std::string at_end() const;
  /// Takes what the metrics of the run tell of its last steps (last_step_numbers), up to `last`. So a run that
  /// continues tells what it would have told without the interruption.
  void take_history(const std::string& metrics_lines, int64_t last);

 private:
  // What a number does from some step on.
  struct Stuck {
    std::optional<int64_t> since;  // nothing: it is not
    int64_t last = -kSteps;        // the last step in which it was, since it was told
    bool note(int64_t step, int64_t since_step, bool is_stuck);
  };
  double last_loss_ = 0;
  int64_t same_ = 0, last_step_ = 0;  // same_: steps whose loss was that of the one before
  Stuck gradient_, loss_;
};

}  // namespace athanor::inline watch
