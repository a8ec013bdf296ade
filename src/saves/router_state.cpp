#include "saves/router_state.h"

#include "ops/transfer.h"

namespace athanor::inline saves {

Tensor tensor_of(const RouterRows& rows) {
  std::vector<Tensor> layers;
  for (const auto& row : rows) layers.push_back(at::tensor(row, at::kFloat));
  return at::stack(layers);
}

RouterRows rows_of(const Tensor& tensor_LE) {
  RouterRows rows;
  const Tensor here_LE = ops::fetch(tensor_LE);
  for (int64_t layer = 0; layer < here_LE.size(0); ++layer) {
    const Tensor row = here_LE[layer].contiguous();
    rows.emplace_back(row.const_data_ptr<float>(), row.const_data_ptr<float>() + row.numel());
  }
  return rows;
}

}  // namespace athanor::inline saves
