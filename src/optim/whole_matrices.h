#pragma once
// Gives an optimizer whole matrices of the values that it computes for its elements, although flat shards cut them
// anywhere and tensor ranks hold parts: for Muon, Shampoo and others.

#include <functional>
#include <map>
#include <span>
#include <vector>

#include "parallel/parameters.h"
#include "parallel/shard_plan.h"

namespace athanor {

/// The references must outlive this.
class WholeMatrices {
 public:
  /// Collective over the tensor ranks: an all-gather of the parts of the parameters that each holds.
  WholeMatrices(const ParameterStore& store, const ShardPlan& plan);

  /// Writes this rank's values of `owned` (within one parameter) to `out`.
  using Read = std::function<void(FlatRange owned, std::span<float> out)>;
  /// Takes the values of a parameter: [rows, columns] or, of stacked experts, [experts held here, rows, columns], fp32.
  using Visit = std::function<void(const BucketEntry& entry, const Tensor& whole)>;

  /// Gathers the parameters of a bucket that `selects` names, and visits each. Collective over the ranks that share the
  /// bucket's state, and over the tensor ranks: every rank calls it for all buckets in one order, with equal answers of
  /// `selects`. Each rank sends and holds what the bucket's gradient takes in fp32, and as much again for each selected
  /// parameter that tensor ranks cut.
  void gather(const Bucket& bucket, const std::function<bool(const BucketEntry&)>& selects, const Read& read,
              const Visit& visit) const;

  /// Copies to `out` the elements of a visited tensor that lie in `owned`, a range of the entry in flat memory.
  static void take(const BucketEntry& entry, const Tensor& whole, FlatRange owned, std::span<float> out);

 private:
  // The part of a parameter that one tensor rank holds: along the dim that tensor ranks cut.
  struct Part {
    int64_t begin, size;
  };
  Tensor joined(const BucketEntry& entry, const Tensor& held) const;

  const ParameterStore& store_;
  const ShardPlan& plan_;
  std::map<const BucketEntry*, std::vector<Part>> parts_;  // by tensor rank, of the parameters that they cut
};

}  // namespace athanor
