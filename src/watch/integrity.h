#pragma once
// Finds numbers that have changed in memory without anyone having written them (silent corruption).
//
// In a step that is checked:
//   - the weights that forward reads are hashed when the ranks have gathered them, and again before the update. A
//     difference is a flipped bit on this rank;
//   - the master's lower bits and the optimizers' state are hashed after the update of the step before, and again
//     before the update. In fp32 the weights are the master;
//   - ranks that should hold the same of these compare the first hashes, so that one whose memory changed earlier is
//     found as well, if most of them agree.
// A flip before the update of a checked step is thus found before it spreads. Flips in other steps are found only if
// they make copies differ in the next step that is checked. On a device a checked step has two waits more.
// Source: Optimus §4 (soft failures); the method is ours.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "train/train_state.h"
#include "watch/block_hashes.h"

namespace athanor::inline watch {

/// A difference between the ranks of a group.
struct UnequalCopies {
  size_t index = 0;                   ///< which of the compared numbers is the first that differs
  std::vector<int> wrong_ranks = {};  ///< in the group, ascending: those without the value that most ranks have
  bool is_known = true;               ///< false: no value is that of most ranks, and wrong_ranks are all of them
};

/// Compares numbers of which each rank of the group has the same list, if all is right. Collective over the group: a
/// maximum, and if ranks differ a gather of one number. The result is the same on all ranks.
std::optional<UnequalCopies> find_unequal_copies(comm::Communicator& group, std::span<const int64_t> numbers);

class Integrity {
 public:
  /// @param interval  steps from one that is checked to the next; 0: none is. `state` must outlive this.
  Integrity(TrainState& state, int64_t interval);

  /// To be called before the gradients of step `step` are computed. Collective.
  /// @throws NumbersError, the same on every rank, if ranks hold different weights or state that should be the same. It
  /// names no rank if the ranks that hold them are divided.
  void begin_step(int64_t step);
  /// To be called before the update of that step. Collective. @throws NumbersError, the same on every rank, naming
  /// rank, host, tensor and elements of what has changed; of small tensors in one block the first and the last.
  void before_update();
  /// To be called after the update of step `step`.
  void after_update(int64_t step);
  /// Returns the seconds that this rank has spent on hashing so far.
  double seconds() const { return seconds_; }
  /// Returns how memory of the model is hashed; null if no step is checked.
  const std::shared_ptr<const ops::MemoryHasher>& hasher() const { return hasher_; }

 private:
  // Memory that must not change for a while.
  struct Watched {
    std::string what;  // "the weights", "exp_avg"
    FlatRange flat;    // the elements of flat memory that it belongs to; empty: to none in particular
    const Bucket* bucket;
    Tensor values;
    BlockHashes hashes;
  };
  // What this rank has found.
  struct Finding {
    std::string tensor, text;
    bool is_own = true;  // false: it is not known which of several ranks is wrong
  };

  void watch(std::vector<Watched>& list, const std::string& what, const Tensor& values, FlatRange flat = {},
             const Bucket* bucket = nullptr) const;
  void watch_owned(const std::string& what, const Tensor& values, const std::vector<OwnedRange>& owned);
  void hash_weights();
  void hash_state();
  std::map<GroupKind, std::vector<const Watched*>> copies_by_group() const;
  std::optional<Finding> compare_copies();
  std::optional<Finding> finding_of(const comm::Communicator& group, const UnequalCopies& unequal,
                                    const Watched& watched) const;
  std::optional<Finding> find_change();
  std::string parameters_in(const Watched& watched, FlatRange range) const;
  std::string first_parameter_of(const Watched& watched) const;
  void fail_if_found(const std::optional<Finding>& own) const;

  TrainState& state_;
  int64_t interval_, step_ = 0;
  std::shared_ptr<const ops::MemoryHasher> hasher_;  // null: no step is checked
  double seconds_ = 0;
  std::vector<Watched> weights_, optimizer_state_;  // empty: not hashed
};

}  // namespace athanor::inline watch
