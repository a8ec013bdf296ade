#include "ops/device/expert_rows.h"

#include <algorithm>

#include "kernels/cuda/expert_activation.h"
#include "kernels/routing.h"
#include "ops/device/on_stream.h"

namespace athanor::ops::device {
namespace {

Tensor transposed(const Tensor& weight) { return weight.transpose(1, 2); }

Tensor activate_rows(const Tensor& gate_RF, const Tensor& up_RF, const Tensor& weights_TK, const RowRoute& route) {
  const Tensor act_RF = at::empty_like(gate_RF);
  const OnStream stream(gate_RF);
  with_element(gate_RF, [&](auto* tag) {
    using T = std::decay_t<decltype(*tag)>;
    kernels::cuda::expert_activation<T>(stream, data<T>(gate_RF), data<T>(up_RF), data<float>(weights_TK), route.rows(),
                                        data<T>(act_RF), gate_RF.size(1));
  });
  return act_RF;
}

}  // namespace

kernels::cuda::ExpertRows RowRoute::rows() const {
  return {data<int64_t>(choice_of_row), data<int64_t>(groups.offsets) + groups.ends.numel(), most_rows()};
}

RowRoute make_row_route(const Tensor& expert_ids_TK, int64_t first_local_expert, int64_t num_local_experts,
                        int64_t most_choices) {
  const auto options = expert_ids_TK.options();
  const int64_t tokens = expert_ids_TK.size(0), k = expert_ids_TK.size(1);
  const int64_t most = kernels::max_rows(most_choices, 1, num_local_experts, kGroupAlignment);
  // The total of rows is also a multiple of 8, as products over rows require.
  const int64_t rows = (most + kGroupAlignment - 1) / kGroupAlignment * kGroupAlignment;
  const Tensor offsets = at::empty({num_local_experts + 1}, options), choice_of_row = at::empty({rows}, options),
               row_of_choice = at::empty({tokens * k}, options);
  const Tensor workspace = at::empty({kernels::cuda::sort_choices_workspace(tokens, num_local_experts)}, options);
  kernels::cuda::sort_choices(OnStream(expert_ids_TK), data<int64_t>(expert_ids_TK), tokens, k, first_local_expert,
                              num_local_experts, data<int64_t>(offsets), data<int64_t>(choice_of_row),
                              data<int64_t>(row_of_choice), data<int64_t>(workspace), kGroupAlignment);
  return {Groups(offsets), choice_of_row, row_of_choice, k};
}

Tensor gather_rows(const Tensor& x_TD, const RowRoute& route) {
  const Tensor rows_RD = at::empty({route.most_rows(), x_TD.size(1)}, x_TD.options());
  const OnStream stream(x_TD);
  with_element(x_TD, [&](auto* tag) {
    using T = std::decay_t<decltype(*tag)>;
    kernels::cuda::gather_rows<T>(stream, data<T>(x_TD), route.rows(), data<T>(rows_RD), route.k, x_TD.size(1));
  });
  return rows_RD;
}

Tensor combine_rows(const Tensor& y_RD, const Tensor& z_RD, const Tensor& weights_TK, const RowRoute& route,
                    int64_t tokens) {
  const Tensor out_TD = at::empty({tokens, y_RD.size(1)}, y_RD.options());
  const OnStream stream(y_RD);
  with_element(y_RD, [&](auto* tag) {
    using T = std::decay_t<decltype(*tag)>;
    kernels::cuda::combine_rows<T>(stream, data<T>(y_RD), data<T>(z_RD), data<float>(weights_TK),
                                   data<int64_t>(route.row_of_choice), data<T>(out_TD), tokens, route.k, y_RD.size(1));
  });
  return out_TD;
}

ExpertRows multiply_rows(Tensor x_RD, const Tensor& weights_TK, const RowRoute& route, const ExpertWeights& w) {
  ExpertRows rows;
  rows.gate_RF = grouped_matmul(x_RD, transposed(w.gate_LFD.value), route.groups);
  rows.up_RF = grouped_matmul(x_RD, transposed(w.up_LFD.value), route.groups);
  x_RD.reset();
  const Tensor act_RF = activate_rows(rows.gate_RF, rows.up_RF, weights_TK, route);
  rows.y_RD = grouped_matmul(act_RF, transposed(w.down_LDF.value), route.groups);
  return rows;
}

ExpertRowGradients backward_rows(const ExpertRows& rows, const Tensor& dy_RD, const Tensor& weights_TK,
                                 const RowRoute& route, const ExpertWeights& w, const Tensor& dweights_TK) {
  const Tensor& gate_RF = rows.gate_RF;
  // The kernel writes dgate over dact.
  const ExpertRowGradients out{grouped_matmul(dy_RD, w.down_LDF.value, route.groups), at::empty_like(gate_RF),
                               at::empty_like(gate_RF)};
  const OnStream stream(gate_RF);
  with_element(gate_RF, [&](auto* tag) {
    using T = std::decay_t<decltype(*tag)>;
    kernels::cuda::expert_activation_backward<T>(stream, data<T>(gate_RF), data<T>(rows.up_RF), data<T>(out.dgate_RF),
                                                 data<T>(out.dup_RF), data<T>(out.act_RF), data<float>(weights_TK),
                                                 route.rows(), data<float>(dweights_TK), gate_RF.size(1));
  });
  return out;
}

Tensor input_gradients(const ExpertRowGradients& rows, const RowRoute& route, const ExpertWeights& w, int64_t tokens) {
  const Tensor by_gate_RD = grouped_matmul(rows.dgate_RF, w.gate_LFD.value, route.groups);
  const Tensor by_up_RD = grouped_matmul(rows.dup_RF, w.up_LFD.value, route.groups);
  return combine_rows(by_gate_RD, by_up_RD, {}, route, tokens);
}

void add_weight_gradients(const ExpertRowGradients& rows, const Tensor& x_RD, const Tensor& dy_RD,
                          const RowRoute& route, const ExpertWeights& w) {
  add_grouped_outer_product(w.down_LDF.grad, dy_RD, rows.act_RF, route.groups);
  add_grouped_outer_product(w.gate_LFD.grad, rows.dgate_RF, x_RD, route.groups);
  add_grouped_outer_product(w.up_LFD.grad, rows.dup_RF, x_RD, route.groups);
}

}  // namespace athanor::ops::device
