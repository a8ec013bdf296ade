#pragma once
// Sums over whole matrices of the model, whichever ranks hold and own their elements: norms for LAMB, LARS and others.

#include <map>
#include <string>

#include "parallel/parameters.h"
#include "parallel/shard_plan.h"

namespace athanor {

/// Numbers the matrices of the model in the order of its inventory; each expert of a stack is a matrix, and a norm's
/// scale counts as one. The references must outlive this.
class TensorSums {
 public:
  TensorSums(const ModelConfig& model, const ParameterStore& store, const ShardPlan& plan);

  /// Returns the number of matrices of the whole model.
  int64_t num_matrices() const { return num_matrices_; }
  /// Returns the number of the first of the matrices that this rank holds of a parameter; the others follow.
  int64_t first_matrix(const BucketEntry& entry) const;

  /// Calls visit(entry, number, piece) for each piece of `range` that is within one matrix, in order.
  template <class Visit>
  void for_each_matrix(FlatRange range, Visit visit) const {
    for (const BucketEntry& entry : store_.table()) {
      const FlatRange held = intersect(range, entry.range());
      if (held.size() <= 0) continue;
      const int64_t matrices = entry.num_elements() / elements_of_matrix(entry);
      for (int64_t m = 0; m < matrices; ++m) {
        const FlatRange piece = intersect(held, part_of(entry.range(), matrices, m));
        if (piece.size() > 0) visit(entry, first_matrix(entry) + m, piece);
      }
    }
  }

  /// Returns the part of `range` that only this rank counts. Together the ranks count every element of the model once.
  FlatRange counted(const Bucket& bucket) const { return plan_.canonical(bucket); }

  /// Adds `sums`, [num_matrices, n] fp64, up over all ranks, in place. Each rank gives the sums over what it counts, so
  /// that the result is on every rank and no sharding changes it by more than fp64's rounding. Collective over the
  /// tensor and pipeline ranks, then the data ranks: two all-reduces of 8 · n · num_matrices bytes.
  void add_up(const Tensor& sums) const;

 private:
  static int64_t elements_of_matrix(const BucketEntry& entry);

  const ParameterStore& store_;
  const ShardPlan& plan_;
  std::map<std::string, int64_t> first_matrix_;  // in the whole parameter
  int64_t num_matrices_ = 0;
};

}  // namespace athanor
