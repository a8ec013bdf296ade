#include "train/packed_numbers.h"

#include <utility>

namespace athanor::inline train {

std::vector<Tensor*> tensors_of(LossParts& parts) {
  std::vector<Tensor*> tensors;
  const auto add = [&](Tensor& each) {
    if (each.defined()) tensors.push_back(&each);
  };
  add(parts.on_device);
  for (Tensor RouterCounts::*each : RouterCounts::kCounts) add(parts.routers.*each);
  add(parts.routers.entropy_sum);
  return tensors;
}

Tensor pack_numbers(std::span<Tensor* const> tensors) {
  std::vector<Tensor> all;
  for (const Tensor* each : tensors) all.push_back(each->contiguous().view(at::kLong).reshape({-1}));
  return at::cat(all);
}

void unpack_numbers(const Tensor& packed, std::span<Tensor* const> tensors) {
  int64_t at = 0;
  for (Tensor* each : tensors) {
    const Tensor values = packed.narrow(0, std::exchange(at, at + each->numel()), each->numel());
    *each = values.view(each->scalar_type()).view(each->sizes());
  }
}

}  // namespace athanor::inline train
