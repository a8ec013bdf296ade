#pragma once
// For tests: gives an optimizer such as Muon or Shampoo whole matrices of values that each rank computes for the
// elements that it owns, although shards cut matrices anywhere and tensor ranks hold parts of them.

#include <algorithm>
#include <functional>
#include <span>
#include <vector>

#include "optim/home_matrices.h"
#include "parallel/parameters.h"
#include "parallel/shard_plan.h"

namespace athanor::inline optim {

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
};

// The dim of the whole parameter that tensor ranks cut; −1 if they hold it whole.
inline int64_t cut_dim(const BucketEntry& entry) {
  const int cut = cut_dim_of_matrix(entry);
  return cut < 0 ? -1 : static_cast<int64_t>(first_matrix_dim(entry)) + cut;
}

inline WholeMatrices::WholeMatrices(const ParameterStore& store, const ShardPlan& plan) : store_(store), plan_(plan) {}

inline void WholeMatrices::gather(const Bucket& bucket, const std::function<bool(const BucketEntry&)>& selects,
                                  const Read& read, const Visit& visit) const {
  std::vector<const BucketEntry*> selected;
  for (const BucketEntry& entry : store_.table()) {
    if (intersect(entry.range(), bucket.range).size() > 0 && selects(entry)) selected.push_back(&entry);
  }
  if (selected.empty()) return;
  const FlatRange owned = plan_.owned(bucket);
  const Tensor values = at::zeros({bucket.range.size()}, at::kFloat);
  const auto in_bucket = [&](FlatRange range) {
    return values.narrow(0, range.begin - bucket.range.begin, range.size());
  };
  for (const BucketEntry* entry : selected) {
    const FlatRange part = intersect(entry->range(), owned);
    if (part.size() <= 0) continue;
    read(part, {in_bucket(part).data_ptr<float>(), static_cast<size_t>(part.size())});
  }
  if (comm::Communicator* ranks = plan_.of(bucket).gather) ranks->all_gather(values, in_bucket(owned)).wait();
  for (const BucketEntry* entry : selected) {
    const Tensor held = in_bucket(entry->range()).view(entry->extent);
    visit(*entry, cut_dim_of_matrix(*entry) < 0 ? held : joined(*entry, held));
  }
}

inline Tensor WholeMatrices::joined(const BucketEntry& entry, const Tensor& held) const {
  comm::Communicator& ranks = plan_.mesh().group(GroupKind::kTensor);
  const auto parts = parts_of_tensor_ranks(entry, ranks.size());
  const int64_t dim = cut_dim(entry), largest = std::ranges::max(parts, {}, &TensorPart::size).size;
  // Parts may differ in size, and an all-gather takes equal ones.
  std::vector<int64_t> shape = entry.extent;
  shape[static_cast<size_t>(dim)] = largest;
  const Tensor own = at::zeros(shape, at::kFloat);
  own.narrow(dim, 0, held.size(dim)).copy_(held);
  shape.insert(shape.begin(), ranks.size());
  const Tensor all = at::empty(shape, at::kFloat);
  ranks.all_gather(all, own).wait();
  shape.erase(shape.begin());
  shape[static_cast<size_t>(dim)] = entry.global_shape[static_cast<size_t>(dim)];
  const Tensor whole = at::empty(shape, at::kFloat);
  for (int r = 0; r < ranks.size(); ++r) {
    const TensorPart& part = parts[static_cast<size_t>(r)];
    whole.narrow(dim, part.begin, part.size).copy_(all[r].narrow(dim, 0, part.size));
  }
  return whole;
}

inline void WholeMatrices::take(const BucketEntry& entry, const Tensor& whole, FlatRange owned, std::span<float> out) {
  ATHANOR_ASSERT(intersect(owned, entry.range()) == owned && std::ssize(out) == owned.size());
  // `whole` lacks the experts of other ranks.
  const bool stacked = first_matrix_dim(entry) == 1;
  const int64_t before = stacked ? entry.offset.front() * (whole.numel() / whole.size(0)) : 0;
  const auto* value = whole.const_data_ptr<float>();
  for_each_run(entry, owned.begin - entry.flat_begin, owned.size(), [&](int64_t global, int64_t at, int64_t count) {
    std::copy_n(value + global - before, count, out.begin() + at);
  });
}

}  // namespace athanor::inline optim
