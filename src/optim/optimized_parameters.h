#pragma once
// The parameters that one optimizer updates: their groups' settings, how many updates each has had, and where the
// optimizer's state of each owned element is.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "layout/optimizer_state.h"
#include "ops/update.h"
#include "parallel/parameters.h"

namespace athanor::inline optim {

/// Returns weights, lower bits of the master and gradient of `range` of flat memory, which this rank owns.
ops::UpdateMemory update_memory(const ParameterStore& store, FlatRange range);

class OptimizedParameters {
 public:
  /// Takes the parameters whose group in `plan` names this optimizer. `store` must outlive this.
  OptimizedParameters(ParameterStore& store, const OptimizerPlan& plan, const std::string& optimizer);

  ParameterStore& store() const { return *store_; }
  /// The parameters of which this rank holds a part, in the order of the table.
  const std::vector<const BucketEntry*>& entries() const { return entries_; }
  /// Returns the number of elements of the optimizer's per-element state: those owned, with the padding after them.
  int64_t state_size() const;
  /// The owned ranges of these parameters, and where the per-element state of each begins.
  const std::vector<OwnedRange>& owned() const { return owned_; }
  /// Returns the index in the per-element state at which that of `range` (in flat memory) begins; nothing if `range`
  /// does not lie in one of the owned ranges.
  std::optional<int64_t> state_begin(FlatRange range) const;
  /// Return the number of matrices of which this rank holds a part, and the index among them of the first one of an
  /// entry (one of entries()). Per-matrix state of the entry begins at this index.
  int64_t num_matrices() const { return num_matrices_; }
  int64_t first_matrix(const BucketEntry& entry) const { return first_matrix_.at(&entry); }

  ops::UpdateMemory memory(FlatRange range) const { return update_memory(*store_, range); }
  /// Returns the memory of the whole store. A range of it has its lower bits at ParameterStore::state_begin(range).
  ops::UpdateMemory all_memory() const { return {store_->compute(), store_->master_low(), store_->grad()}; }

  /// Sets, for each parameter whose state has not been kept since the beginning of the run, the step after which its
  /// state was zero: its updates are counted from there. A parameter that is not named has had all updates of the run.
  /// Names of parameters that this rank does not hold are ignored. Replaces what an earlier call has set.
  void set_fresh_since(const std::map<std::string, int64_t>& step_of_parameter);

  /// Neighbouring parameters with the same settings.
  struct Segment {
    FlatRange range;  ///< in flat memory, with the padding after the parameters
    double lr_scale, weight_decay;
    int64_t since;  ///< set_fresh_since; with update t of the run, their state has had t − since updates

    bool has_settings_of(const Segment& other) const {
      return lr_scale == other.lr_scale && weight_decay == other.weight_decay && since == other.since;
    }
  };

  /// Calls visit(segment, owned, index) for each piece of `range` that this rank owns and that lies in one segment, in
  /// the order of flat memory. `owned` is the piece; its per-element state begins at element `index`.
  template <class Visit>
  void for_each_owned(FlatRange range, Visit visit) const {
    for (const Segment& segment : segments_) {
      const FlatRange here = intersect(range, segment.range);
      if (here.size() <= 0) continue;
      for (const OwnedRange& owned : owned_) {
        const FlatRange common = intersect(here, owned.flat);
        if (common.size() > 0) visit(segment, common, owned.state_begin + common.begin - owned.flat.begin);
      }
    }
  }

 private:
  ParameterStore* store_;
  std::vector<const BucketEntry*> entries_;
  std::map<const BucketEntry*, int64_t> first_matrix_;
  int64_t num_matrices_ = 0;
  std::vector<OwnedRange> owned_;
  std::vector<Segment> groups_;    // without ages
  std::vector<Segment> segments_;  // cut where ages differ
};

}  // namespace athanor::inline optim
