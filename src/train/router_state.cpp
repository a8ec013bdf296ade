#include "train/router_state.h"

namespace athanor {

Tensor tensor_of(const RouterRows& rows) {
  std::vector<Tensor> layers;
  for (const auto& row : rows) layers.push_back(at::tensor(row, at::kFloat));
  return at::stack(layers);
}

RouterRows rows_of(const Tensor& tensor_LE) {
  RouterRows rows;
  for (int64_t layer = 0; layer < tensor_LE.size(0); ++layer) {
    const Tensor row = tensor_LE[layer].contiguous();
    rows.emplace_back(row.const_data_ptr<float>(), row.const_data_ptr<float>() + row.numel());
  }
  return rows;
}

}  // namespace athanor
