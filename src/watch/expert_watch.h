#pragma once
// Finds experts that take almost no tokens (dead: they no longer learn) and experts that take far too many (overloaded:
// the ranks wait for theirs), over windows of steps, since a single step shows either by chance.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "config/model_config.h"
#include "parallel/router_counts.h"

namespace athanor::inline watch {

class ExpertWatch {
 public:
  /// A window has this many steps or more, and ends when the experts of each layer have taken this many choices on
  /// average: with fewer, chance alone might leave one without any.
  static constexpr int kSteps = 100, kChoices = 100;

  /// `model` must outlive this.
  explicit ExpertWatch(const ModelConfig& model) : model_(model) {}

  /// Takes the counts of the whole batch of a step; undefined for dense models. Sends nothing.
  ///
  /// An expert is dead if it took less than a hundredth of the mean of its layer. It is overloaded if it took more than
  /// 4 times the mean. If the model has fewer than 4.4 experts for each that a token chooses, more than 9 of 10 tokens
  /// and at least twice the mean are enough.
  /// @return at the end of a window: a line, if other experts are dead or overloaded than in the one before; else "".
  std::string took(int64_t step, const RouterCounts& counts);

 private:
  using Expert = std::pair<int64_t, int64_t>;  // layer of the model, number of the expert
  std::string compare(int64_t step);

  const ModelConfig& model_;
  Tensor taken_;  // [sparse layers, experts] int64, of the window; undefined at its begin
  int64_t steps_ = 0;
  std::vector<Expert> dead_, overloaded_;  // those of the window before
};

}  // namespace athanor::inline watch
