#pragma once
// Finds parameters that the updates do not change: one that the loss does not depend on, or whose updates are rounded
// away. The loss falls all the same, so that nothing else shows them.
// Source: AuroraGPT's silent bugs (a norm that did not move for 17,400 steps); the method is ours.

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "train/train_state.h"
#include "watch/block_hashes.h"

namespace athanor::inline watch {

class FrozenParameters {
 public:
  static constexpr size_t kMostNamed = 32;

  /// @param interval  steps from one look to the next; 0: it never looks. `state` must outlive this.
  /// @param hasher    of the model's device; not used if it never looks.
  FrozenParameters(TrainState& state, int64_t interval, std::shared_ptr<const ops::MemoryHasher> hasher)
      : state_(state), interval_(interval), hasher_(std::move(hasher)) {}

  /// To be called after the update of a step with this learning rate. In each step that the interval divides, compares
  /// the master of every parameter with that of the last such step. Collective over the world.
  /// @return on the first rank: names of at most kMostNamed parameters no element of which has changed since then,
  ///         although a learning rate was above 0, if any of them is new; else, and on other ranks, nothing.
  std::vector<std::string> after_update(int64_t step, double lr);

  /// Returns the seconds that this rank has spent on looking so far.
  double seconds() const { return seconds_; }

 private:
  std::vector<int64_t> fingerprints();
  void reduce(Tensor moved, GroupKind kind, bool experts) const;
  std::vector<std::string> gather(const std::set<std::string>& frozen);

  TrainState& state_;
  int64_t interval_;
  std::shared_ptr<const ops::MemoryHasher> hasher_;
  double seconds_ = 0, largest_lr_ = 0;  // since the last look
  std::vector<int64_t> before_;          // by parameter of the table; empty: there was no look yet
  std::set<std::string> known_;          // those found in the last look that this rank holds
};

/// Returns what FrozenParameters found in the look after this step, as a line for the log.
std::string describe_frozen(const std::vector<std::string>& names, int64_t step, int64_t interval);

}  // namespace athanor::inline watch
