#include "optim/tensor_sums.h"

#include "comm/watches.h"
#include "layout/optimizer_state.h"

namespace athanor::inline optim {

TensorSums::TensorSums(const ModelConfig& model, const ParameterStore& store, const ShardPlan& plan)
    : store_(store), plan_(plan) {
  for (const ParameterSpec& spec : make_inventory(model)) {
    first_matrix_[spec.name] = num_matrices_;
    num_matrices_ += count_matrices(spec);
  }
}

int64_t TensorSums::first_matrix(const BucketEntry& entry) const {
  const bool stacked = count_matrices(entry.replication, entry.global_shape) > 1;
  return first_matrix_.at(entry.name) + (stacked ? entry.offset.front() : 0);
}

int64_t TensorSums::elements_of_matrix(const BucketEntry& entry) {
  return entry.num_elements() / count_matrices(entry.replication, entry.extent);
}

void TensorSums::add_up(const Tensor& sums) const {
  ATHANOR_ASSERT(sums.scalar_type() == at::kDouble && sums.size(0) == num_matrices_);
  if (plan_.is_trivial()) return;
  const comm::SendsFor purpose(TrafficPurpose::kUpdates);
  plan_.mesh().group(GroupKind::kModel).all_reduce(sums).wait();
  plan_.mesh().group(GroupKind::kData).all_reduce(sums).wait();
}

}  // namespace athanor::inline optim
