#pragma once
// Finds numbers that have changed in memory without anyone having written them (silent corruption).
//
// In a step that is checked:
//   - the weights that forward reads are hashed when the ranks have gathered them, and again before the update. A
//     difference is a flipped bit on this rank. Ranks that hold the same weights compare the first hash, so that one
//     whose weights have changed earlier is found as well, if it is in the minority;
//   - the master's lower bits and the optimizers' state are hashed after the update of the step before, and again
//     before the update. In fp32 the weights are the master.
// A flip before the update of a checked step is thus found before it spreads. Flips in other steps are found only if
// they make replicas differ in the next step that is checked.
// Source: Optimus §4 (soft failures); the method is ours.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "train/block_hashes.h"
#include "train/train_state.h"

namespace athanor {

class Integrity {
 public:
  /// @param interval  steps from one that is checked to the next; 0: none is. `state` must outlive this.
  Integrity(TrainState& state, int64_t interval);

  /// To be called before the gradients of step `step` are computed. Collective.
  /// @throws NumbersError, the same on every rank, if ranks hold different weights that should be the same.
  void begin_step(int64_t step);
  /// To be called before the update of that step. Collective. @throws NumbersError, the same on every rank, naming
  /// rank, host, tensor and elements of what has changed.
  void before_update();
  /// To be called after the update of step `step`.
  void after_update(int64_t step);
  /// Returns the seconds that this rank has spent on hashing so far.
  double seconds() const { return seconds_; }

 private:
  // Memory that must not change for a while.
  struct Watched {
    enum class Index { kFlat, kState, kOther };  // what its elements are indexed by
    std::string what;                            // "the weights", "exp_avg"
    Index index;
    const Optimizer* optimizer;  // for kState; null: the master's lower bits
    int64_t begin;               // where `values` begins in that index
    Tensor values;
    BlockHashes hashes;
  };
  // What this rank has found.
  struct Finding {
    std::string tensor, text;
  };

  bool is_due(int64_t step) const { return interval_ > 0 && step % interval_ == 0; }
  void watch(std::vector<Watched>& list, const std::string& what, Watched::Index index, const Tensor& values,
             int64_t begin = 0, const Optimizer* optimizer = nullptr) const;
  void hash_weights();
  void hash_state();
  std::optional<Finding> find_change(const std::vector<Watched>& list);
  std::string name_of(const Watched& watched, FlatRange range) const;
  std::optional<Finding> compare_replicas(GroupKind kind, bool experts) const;
  void fail_if_found(const std::optional<Finding>& own) const;

  TrainState& state_;
  int64_t interval_, step_ = 0;
  double seconds_ = 0;
  std::vector<Watched> weights_, optimizer_state_;  // empty: not hashed
};

}  // namespace athanor
