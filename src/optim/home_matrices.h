#pragma once
// Brings each whole matrix of a stage to its home rank (layout/home_plan.h), lets the home compute it, and brings the
// result back to every rank that owns a piece.

#include <functional>
#include <span>
#include <vector>

#include "layout/home_plan.h"
#include "parallel/parameters.h"
#include "parallel/shard_plan.h"

namespace athanor::inline optim {

/// Matrices of one shape on their home rank.
struct HomeStack {
  Tensor values;                            ///< fp32 [matrices, rows, columns]
  std::vector<const BucketEntry*> entries;  ///< the parameter of each
};

class HomeMatrices {
 public:
  /// `store` and `shards` must outlive this.
  HomeMatrices(const ParameterStore& store, const ShardPlan& shards) : store_(store), shards_(shards) {}

  /// Returns the plan for the parameters of `entries`, which has pointers into the store's table.
  HomePlan plan(const std::vector<const BucketEntry*>& entries) const;

  /// Replaces the values of the plan's matrices in `flat` by what `compute` makes of them.
  ///
  /// Collective over kData and kTensor, all ranks with plans of the same parameters: at most four all-to-alls, two over
  /// each, none over a group of one. It holds the matrices of which this rank is the home, the parts that it passes on,
  /// and what it sends and receives in one exchange, in fp32.
  /// @param flat  fp32, flat memory of the store: the elements that this rank owns are read and written, no others.
  /// @param compute  called once, with one stack for each shape, in place; not called without matrices.
  void update(const HomePlan& plan, const Tensor& flat,
              const std::function<void(std::span<const HomeStack>)>& compute) const;

 private:
  const ParameterStore& store_;
  const ShardPlan& shards_;
};

}  // namespace athanor::inline optim
