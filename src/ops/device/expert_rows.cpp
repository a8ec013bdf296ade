#include "ops/device/expert_rows.h"

#include <algorithm>
#include <optional>

#include "kernels/cuda/expert_activation.h"
#include "kernels/routing.h"
#include "ops/device/on_stream.h"

namespace athanor::ops::device {
namespace {

Tensor transposed(const Tensor& weight) { return weight.transpose(1, 2); }

// Which bias a row gets, and with which weight: its expert [R] and its choice [R], 0 where `chosen` [R, 1] is false.
// That is so for rows of padding and for those after the last row.
struct RowFacts {
  Tensor expert, choice, chosen;

  explicit RowFacts(const RowRoute& route) {
    const Tensor row = at::arange(route.most_rows(), route.choice_of_row.options());
    const int64_t experts = route.groups.ends.numel();
    expert = at::searchsorted(route.groups.offsets.narrow(0, 1, experts), row, /*out_int32=*/false, /*right=*/true)
                 .clamp_max(experts - 1);
    const Tensor is_chosen = (row < route.groups.offsets[experts]).logical_and(route.choice_of_row >= 0);
    choice = at::where(is_chosen, route.choice_of_row, 0);
    chosen = is_chosen.unsqueeze(1);
  }

  // Returns the bias of each row, or its expert's row of another tensor.
  Tensor of_experts(const Tensor& values) const { return values.index_select(0, expert); }
  // Returns the weight of each row's choice, [R, 1] fp32; 0 without one.
  Tensor weights(const Tensor& weights_TK) const {
    return weights_TK.reshape({-1}).index_select(0, choice).unsqueeze(1).masked_fill(chosen.logical_not(), 0);
  }
};

void add_bias(const Tensor& rows, const Weight& bias, const RowFacts& facts) {
  Tensor sum = rows;
  sum.add_(facts.of_experts(bias.value));
}

void add_down_bias(const Tensor& y_RD, const ExpertWeights& w, const Tensor& weights_TK, const RowFacts& facts) {
  Tensor bias = facts.of_experts(w.down_bias_LD.value);
  if (weights_TK.defined()) bias = facts.weights(weights_TK) * bias;
  y_RD.narrow(1, w.first_output, bias.size(1)).add_(bias);
}

// Adds what the down projection's bias contributes to the gradient of the choices' weights.
void add_bias_to_weights_gradient(const Tensor& dy_RD, const ExpertWeights& w, const Tensor& dweights_TK,
                                  const RowFacts& facts) {
  const Tensor bias = facts.of_experts(w.down_bias_LD.value).to(at::kFloat);
  const Tensor dots = (dy_RD.narrow(1, w.first_output, bias.size(1)) * bias).sum(1);
  dweights_TK.view({-1}).index_add_(0, facts.choice, dots.masked_fill(facts.chosen.squeeze(1).logical_not(), 0));
}

Tensor activate_rows(const Tensor& gate_RF, const Tensor& up_RF, const GatedUnit& unit, const Tensor& weights_TK,
                     const RowRoute& route) {
  const Tensor act_RF = at::empty_like(up_RF);
  const OnStream stream(up_RF);
  with_element(up_RF, [&](auto* tag) {
    using T = std::decay_t<decltype(*tag)>;
    const auto* weights = data<float>(weights_TK);
    if (gate_RF.defined())
      kernels::cuda::expert_activation<T>(stream, data<T>(gate_RF), data<T>(up_RF), weights, route.rows(),
                                          data<T>(act_RF), up_RF.size(1), unit);
    else
      kernels::cuda::expert_gelu<T>(stream, data<T>(up_RF), weights, route.rows(), data<T>(act_RF), up_RF.size(1));
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
  if (w.is_gated()) rows.gate_RF = grouped_matmul(x_RD, transposed(w.gate_LFD.value), route.groups);
  rows.up_RF = grouped_matmul(x_RD, transposed(w.up_LFD.value), route.groups);
  x_RD.reset();
  const bool has_biases = w.has_biases() && route.row_of_choice.numel() > 0;
  const auto facts = has_biases ? std::optional<RowFacts>(route) : std::nullopt;
  if (facts) {
    if (w.is_gated()) add_bias(rows.gate_RF, w.gate_bias_LF, *facts);
    add_bias(rows.up_RF, w.up_bias_LF, *facts);
  }
  const Tensor act_RF = activate_rows(rows.gate_RF, rows.up_RF, w.unit, weights_TK, route);
  rows.y_RD = grouped_matmul(act_RF, transposed(w.down_LDF.value), route.groups);
  if (facts) add_down_bias(rows.y_RD, w, weights_TK, *facts);
  return rows;
}

ExpertRowGradients backward_rows(const ExpertRows& rows, const Tensor& dy_RD, const Tensor& weights_TK,
                                 const RowRoute& route, const ExpertWeights& w, const Tensor& dweights_TK) {
  const Tensor& up_RF = rows.up_RF;
  // The kernels write dgate, or dup where there is no gate, over dact.
  const Tensor dact_RF = grouped_matmul(dy_RD, w.down_LDF.value, route.groups), act_RF = at::empty_like(up_RF);
  const ExpertRowGradients out = w.is_gated() ? ExpertRowGradients{dact_RF, at::empty_like(up_RF), act_RF}
                                              : ExpertRowGradients{{}, dact_RF, act_RF};
  const OnStream stream(up_RF);
  with_element(up_RF, [&](auto* tag) {
    using T = std::decay_t<decltype(*tag)>;
    const auto* weights = data<float>(weights_TK);
    auto* dweights = data<float>(dweights_TK);
    if (w.is_gated())
      kernels::cuda::expert_activation_backward<T>(stream, data<T>(rows.gate_RF), data<T>(up_RF), data<T>(dact_RF),
                                                   data<T>(out.dup_RF), data<T>(act_RF), weights, route.rows(),
                                                   dweights, up_RF.size(1), w.unit);
    else
      kernels::cuda::expert_gelu_backward<T>(stream, data<T>(up_RF), data<T>(dact_RF), data<T>(act_RF), weights,
                                             route.rows(), dweights, up_RF.size(1));
  });
  if (w.has_biases() && dweights_TK.numel() > 0) add_bias_to_weights_gradient(dy_RD, w, dweights_TK, RowFacts(route));
  return out;
}

Tensor input_gradients(const ExpertRowGradients& rows, const RowRoute& route, const ExpertWeights& w, int64_t tokens) {
  const Tensor by_up_RD = grouped_matmul(rows.dup_RF, w.up_LFD.value, route.groups);
  if (!w.is_gated()) return combine_rows(by_up_RD, {}, {}, route, tokens);
  const Tensor by_gate_RD = grouped_matmul(rows.dgate_RF, w.gate_LFD.value, route.groups);
  return combine_rows(by_gate_RD, by_up_RD, {}, route, tokens);
}

void add_weight_gradients(const ExpertRowGradients& rows, const Tensor& x_RD, const Tensor& dy_RD,
                          const Tensor& weights_TK, const RowRoute& route, const ExpertWeights& w) {
  add_grouped_outer_product(w.down_LDF.grad, dy_RD, rows.act_RF, route.groups);
  if (w.is_gated()) add_grouped_outer_product(w.gate_LFD.grad, rows.dgate_RF, x_RD, route.groups);
  add_grouped_outer_product(w.up_LFD.grad, rows.dup_RF, x_RD, route.groups);
  if (!w.has_biases() || route.row_of_choice.numel() == 0) return;
  // A bias is a matrix of one column, whose input is 1, or the weight of the choice where that is multiplied in.
  const Tensor one = at::ones({x_RD.size(0), 1}, x_RD.options());
  const Tensor outputs = dy_RD.narrow(1, w.first_output, w.down_bias_LD.value.size(1)).contiguous(),
               weights = RowFacts(route).weights(weights_TK).to(dy_RD.scalar_type());
  add_grouped_outer_product(w.down_bias_LD.grad.unsqueeze(-1), outputs, weights, route.groups);
  if (w.is_gated()) add_grouped_outer_product(w.gate_bias_LF.grad.unsqueeze(-1), rows.dgate_RF, one, route.groups);
  add_grouped_outer_product(w.up_bias_LF.grad.unsqueeze(-1), rows.dup_RF, one, route.groups);
}

}  // namespace athanor::ops::device
