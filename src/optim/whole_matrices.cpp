#include "optim/whole_matrices.h"

#include <algorithm>

namespace athanor {
namespace {

// The dim of the whole parameter that tensor ranks cut; −1 if they hold it whole.
int64_t cut_dim(const BucketEntry& entry) {
  const int cut = cut_dim_of_matrix(entry);
  return cut < 0 ? -1 : static_cast<int64_t>(first_matrix_dim(entry)) + cut;
}

}  // namespace

WholeMatrices::WholeMatrices(const ParameterStore& store, const ShardPlan& plan)
    : store_(store), plan_(plan), parts_(share_tensor_parts(store, plan)) {}

void WholeMatrices::gather(const Bucket& bucket, const std::function<bool(const BucketEntry&)>& selects,
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
    visit(*entry, parts_.contains(entry) ? joined(*entry, held) : held);
  }
}

Tensor WholeMatrices::joined(const BucketEntry& entry, const Tensor& held) const {
  comm::Communicator& ranks = plan_.mesh().group(GroupKind::kTensor);
  const auto& parts = parts_.at(&entry);
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

void WholeMatrices::take(const BucketEntry& entry, const Tensor& whole, FlatRange owned, std::span<float> out) {
  ATHANOR_ASSERT(intersect(owned, entry.range()) == owned && std::ssize(out) == owned.size());
  // `whole` lacks the experts of other ranks.
  const bool stacked = first_matrix_dim(entry) == 1;
  const int64_t before = stacked ? entry.offset.front() * (whole.numel() / whole.size(0)) : 0;
  const auto* value = whole.const_data_ptr<float>();
  for_each_run(entry, owned.begin - entry.flat_begin, owned.size(), [&](int64_t global, int64_t at, int64_t count) {
    std::copy_n(value + global - before, count, out.begin() + at);
  });
}

}  // namespace athanor
