#include "parallel/loss_sum.h"

namespace athanor::inline parallel {
namespace {

// Flattens values of one type into a tensor, and puts them back.
class Packer {
 public:
  explicit Packer(at::ScalarType type) : type_(type) {}

  void add(double& value) {
    parts_.push_back(at::full({1}, value, type_));
    put_back_.emplace_back([&value](const Tensor& sum) { value = sum.item<double>(); });
  }
  void add(int64_t& value) {
    parts_.push_back(at::full({1}, value, type_));
    put_back_.emplace_back([&value](const Tensor& sum) { value = sum.item<int64_t>(); });
  }
  void add(Tensor& value) {
    if (!value.defined()) return;
    ATHANOR_ASSERT(value.scalar_type() == type_);
    parts_.push_back(value.reshape({-1}));
    put_back_.emplace_back([&value](const Tensor& sum) { value = sum.reshape(value.sizes()).clone(); });
  }

  void sum(comm::Communicator& ranks) {
    if (parts_.empty()) return;
    const Tensor packed = at::cat(parts_);
    ranks.all_reduce(packed).wait();
    int64_t at = 0;
    for (size_t i = 0; i < parts_.size(); ++i) {
      put_back_[i](packed.narrow(0, at, parts_[i].numel()));
      at += parts_[i].numel();
    }
  }

 private:
  at::ScalarType type_;
  std::vector<Tensor> parts_;
  std::vector<std::function<void(const Tensor&)>> put_back_;
};

}  // namespace

void sum_over_ranks(comm::Communicator& ranks, LossParts& parts) {
  if (ranks.size() == 1) return;
  Packer numbers(at::kDouble), counts(at::kLong);
  if (parts.on_device.defined()) {
    if (parts.on_device.size(0) == 3) {
      const Tensor targets = at::full({1}, static_cast<double>(parts.num_targets), parts.on_device.options());
      parts.on_device = at::cat({parts.on_device, targets});
    }
    numbers.add(parts.on_device);
  } else {
    numbers.add(parts.loss_sum);
    numbers.add(parts.aux_sum);
    numbers.add(parts.z_sum);
    counts.add(parts.num_targets);
  }
  numbers.add(parts.routers.entropy_sum);
  for (Tensor RouterCounts::*count : RouterCounts::kCounts) counts.add(parts.routers.*count);
  numbers.sum(ranks);
  counts.sum(ranks);
}

}  // namespace athanor::inline parallel
