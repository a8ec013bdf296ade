#pragma once
// Sums over whole matrices of the model, whichever ranks hold and own their elements. LAMB, LARS and others need them
// for norms.

#include <map>
#include <string>

#include "parallel/parameters.h"
#include "parallel/shard_plan.h"

namespace athanor::inline optim {

/// Numbers the matrices of the model from 0, in the order of its inventory (arch/inventory.h); each expert of a stack
/// is a matrix, and a norm's scale counts as one. To sum something over each matrix, a rank calls for_each_matrix with
/// counted(bucket) for every bucket, adds up the pieces by number, and then all ranks call add_up.
class TensorSums {
 public:
  /// `store` and `plan` must outlive this.
  TensorSums(const ModelConfig& model, const ParameterStore& store, const ShardPlan& plan);

  /// Returns the number of matrices of the whole model.
  int64_t num_matrices() const { return num_matrices_; }
  /// Returns the number, in the whole model, of the first of the matrices that this rank holds of a parameter; the
  /// others follow. (OptimizedParameters::first_matrix counts the matrices of this rank instead.)
  int64_t first_matrix(const BucketEntry& entry) const;

  /// Calls visit(entry, number, piece) for each matrix that has elements in `range` of flat memory, in order. `number`
  /// is the matrix's number in the model, `piece` the part of `range` that belongs to it.
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

  /// Returns the part of the bucket that only this rank counts. Together the ranks count every element of the model
  /// once.
  FlatRange counted(const Bucket& bucket) const { return plan_.canonical(bucket); }

  /// Adds up `sums`, [num_matrices, n] fp64, over all ranks, in place. A rank passes its sums over the elements that it
  /// counts; afterwards every rank has the sums over whole matrices, which no sharding changes by more than fp64's
  /// rounding. Collective: an all-reduce over kModel, then one over kData, each of 8 · n · num_matrices bytes.
  void add_up(const Tensor& sums) const;

 private:
  static int64_t elements_of_matrix(const BucketEntry& entry);

  const ParameterStore& store_;
  const ShardPlan& plan_;
  std::map<std::string, int64_t> first_matrix_;  // in the whole parameter
  int64_t num_matrices_ = 0;
};

}  // namespace athanor::inline optim
