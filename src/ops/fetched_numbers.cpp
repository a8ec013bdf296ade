#include "ops/fetched_numbers.h"

#include <utility>
#include <vector>

#include "ops/transfer.h"

namespace athanor::ops {

void fetch_together(std::span<Tensor* const> tensors) {
  std::vector<Tensor*> there;
  for (Tensor* each : tensors)
    if (!each->is_cpu()) there.push_back(each);
  if (!there.empty()) unpack_numbers(fetch(pack_numbers(there)).clone(), there);
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

}  // namespace athanor::ops
