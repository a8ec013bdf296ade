#pragma once
// Gives an optimizer such as Muon or Shampoo whole matrices of values that each rank computes for the elements that it
// owns, although shards cut matrices anywhere and tensor ranks hold parts of them.

#include <functional>
#include <span>
#include <vector>

#include "optim/tensor_parts.h"
#include "parallel/parameters.h"
#include "parallel/shard_plan.h"

namespace athanor {

class WholeMatrices {
 public:
  /// `store` and `plan` must outlive this. Collective over kTensor: the ranks tell each other where their parts of the
  /// parameters begin and how long they are.
  WholeMatrices(const ParameterStore& store, const ShardPlan& plan);

  /// Writes this rank's values for `owned`, a range of flat memory within one parameter, to `out`.
  using Read = std::function<void(FlatRange owned, std::span<float> out)>;
  /// Takes the values of a parameter, fp32: [rows, columns], for stacked experts [experts held here, rows, columns], or
  /// [width] for a norm's scale. They may be overwritten.
  using Visit = std::function<void(const BucketEntry& entry, const Tensor& whole)>;

  /// Gathers the parameters of a bucket for which `selects` is true, and visits each, on every rank. Collective over
  /// GroupPlan::gather of the bucket, and over kTensor: every rank calls it for all buckets in one order, and `selects`
  /// answers the same on all. A rank holds the bucket in fp32 and sends at most this number of bytes. For each selected
  /// parameter that tensor ranks cut it also sends up to the bytes of the whole parameter in fp32, and holds these
  /// about twice while the parts are joined.
  void gather(const Bucket& bucket, const std::function<bool(const BucketEntry&)>& selects, const Read& read,
              const Visit& visit) const;

  /// Copies to `out` the elements of a visited tensor that lie in `owned`, a range of the entry in flat memory.
  static void take(const BucketEntry& entry, const Tensor& whole, FlatRange owned, std::span<float> out);

 private:
  Tensor joined(const BucketEntry& entry, const Tensor& held) const;

  const ParameterStore& store_;
  const ShardPlan& plan_;
  TensorParts parts_;
};

}  // namespace athanor
