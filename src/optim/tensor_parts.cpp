#include "optim/tensor_parts.h"

namespace athanor::inline optim {

TensorParts share_tensor_parts(const ParameterStore& store, const ShardPlan& shards) {
  TensorParts parts;
  comm::Communicator& ranks = shards.mesh().host_group(GroupKind::kTensor);
  if (ranks.size() == 1) return parts;
  const auto& table = store.table();
  const auto entries = static_cast<int64_t>(table.size());
  const Tensor own = at::zeros({entries, 2}, at::kLong), all = at::empty({ranks.size(), entries, 2}, at::kLong);
  auto* number = own.data_ptr<int64_t>();
  for (const BucketEntry& entry : table) {
    const int cut = cut_dim_of_matrix(entry);
    const size_t dim = first_matrix_dim(entry) + static_cast<size_t>(cut < 0 ? 0 : cut);
    *number++ = cut < 0 ? 0 : entry.offset[dim];
    *number++ = cut < 0 ? 0 : entry.extent[dim];
  }
  ranks.all_gather(all, own).wait();
  const auto numbers = all.accessor<int64_t, 3>();
  for (int64_t e = 0; e < entries; ++e) {
    const BucketEntry* entry = &table[static_cast<size_t>(e)];
    if (cut_dim_of_matrix(*entry) < 0) continue;
    for (int r = 0; r < ranks.size(); ++r) parts[entry].push_back({numbers[r][e][0], numbers[r][e][1]});
  }
  return parts;
}

}  // namespace athanor::inline optim
