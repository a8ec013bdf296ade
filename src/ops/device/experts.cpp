// Shapes: T tokens, K choices of each, R the greatest number of rows that choices of local experts can need, L local
// experts, D hidden, F intermediate.

#include "ops/experts.h"

#include "kernels/cuda/expert_activation.h"
#include "kernels/cuda/routing.h"
#include "kernels/routing.h"
#include "ops/device.h"
#include "ops/device/grouped.h"
#include "ops/device/on_stream.h"
#include "ops/device/portable_op.h"

namespace athanor::ops::device {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The row of each choice, sorted by expert; int64 on the device, kept for backward: routing is never computed again.
// There is memory for the largest number of rows that choices can need. What is after the last row, whose number the
// device knows, is neither written nor read.
struct Route {
  Groups groups;
  Tensor choice_of_row, row_of_choice;
  int64_t k;
  int64_t most_rows() const { return choice_of_row.numel(); }
  kernels::cuda::ExpertRows rows() const {
    return {data<int64_t>(choice_of_row), data<int64_t>(groups.offsets) + groups.ends.numel(), most_rows()};
  }
};

Route make_route(const Tensor& expert_ids_TK, int64_t first_local_expert, int64_t num_local_experts) {
  const auto options = expert_ids_TK.options();
  const int64_t tokens = expert_ids_TK.size(0), k = expert_ids_TK.size(1);
  const int64_t most = kernels::max_rows(tokens, k, num_local_experts, kGroupAlignment);
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

Tensor gather(const Tensor& x_TD, const Route& route) {
  const Tensor rows_RD = at::empty({route.most_rows(), x_TD.size(1)}, x_TD.options());
  const OnStream stream(x_TD);
  with_element(x_TD, [&](auto* tag) {
    using T = std::decay_t<decltype(*tag)>;
    kernels::cuda::gather_rows<T>(stream, data<T>(x_TD), route.rows(), data<T>(rows_RD), route.k, x_TD.size(1));
  });
  return rows_RD;
}

// Sums each token's rows of y + z, weighted or (in the backward of gather) unweighted; z may be undefined.
Tensor combine(const Tensor& y_RD, const Tensor& z_RD, const Tensor& weights_TK, const Route& route, int64_t tokens) {
  const Tensor out_TD = at::empty({tokens, y_RD.size(1)}, y_RD.options());
  const OnStream stream(y_RD);
  with_element(y_RD, [&](auto* tag) {
    using T = std::decay_t<decltype(*tag)>;
    kernels::cuda::combine_rows<T>(stream, data<T>(y_RD), data<T>(z_RD), data<float>(weights_TK),
                                   data<int64_t>(route.row_of_choice), data<T>(out_TD), tokens, route.k, y_RD.size(1));
  });
  return out_TD;
}

Tensor activate(const Tensor& gate_RF, const Tensor& up_RF, const Tensor& weights_TK, const Route& route) {
  const Tensor act_RF = at::empty_like(gate_RF);
  const OnStream stream(gate_RF);
  with_element(gate_RF, [&](auto* tag) {
    using T = std::decay_t<decltype(*tag)>;
    kernels::cuda::expert_activation<T>(stream, data<T>(gate_RF), data<T>(up_RF), data<float>(weights_TK), route.rows(),
                                        data<T>(act_RF), gate_RF.size(1));
  });
  return act_RF;
}

// dact becomes dgate. Returns act · weight, dup and (in dweights) the weights' gradient.
void activate_backward(const Tensor& gate_RF, const Tensor& up_RF, const Tensor& dact_RF, const Tensor& weights_TK,
                       const Route& route, const Tensor& dup_RF, const Tensor& act_RF, const Tensor& dweights_TK) {
  const OnStream stream(gate_RF);
  with_element(gate_RF, [&](auto* tag) {
    using T = std::decay_t<decltype(*tag)>;
    kernels::cuda::expert_activation_backward<T>(stream, data<T>(gate_RF), data<T>(up_RF), data<T>(dact_RF),
                                                 data<T>(dup_RF), data<T>(act_RF), data<float>(weights_TK),
                                                 route.rows(), data<float>(dweights_TK), gate_RF.size(1));
  });
}

Tensor transposed(const Tensor& weight) { return weight.transpose(1, 2); }

struct Experts : torch::autograd::Function<Experts> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x_TD, const Tensor& weights_TK, const Route& route,
                        const ExpertWeights& w, bool weigh_before_down) {
    const Tensor x_RD = gather(x_TD, route), none;
    const Tensor gate_RF = grouped_matmul(x_RD, transposed(w.gate_LFD.value), route.groups);
    const Tensor up_RF = grouped_matmul(x_RD, transposed(w.up_LFD.value), route.groups);
    const Tensor act_RF = activate(gate_RF, up_RF, weigh_before_down ? weights_TK : none, route);
    const Tensor y_RD = grouped_matmul(act_RF, transposed(w.down_LDF.value), route.groups);
    if (ctx) {
      ctx->save_for_backward({x_TD, weights_TK, gate_RF, up_RF});
      ctx->saved_data["route"] =
          std::vector<Tensor>{route.groups.offsets, route.groups.ends, route.choice_of_row, route.row_of_choice};
      ctx->saved_data["k"] = route.k;
      ctx->saved_data["values"] = std::vector<Tensor>{w.gate_LFD.value, w.up_LFD.value, w.down_LDF.value};
      ctx->saved_data["grads"] = std::vector<Tensor>{w.gate_LFD.grad, w.up_LFD.grad, w.down_LDF.grad};
    }
    return combine(y_RD, none, weigh_before_down ? none : weights_TK, route, x_TD.size(0));
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    const Tensor &x_TD = saved[0], &weights_TK = saved[1], &gate_RF = saved[2], &up_RF = saved[3];
    const auto parts = ctx->saved_data["route"].toTensorVector();
    const Route route{Groups(parts[0], parts[1]), parts[2], parts[3], ctx->saved_data["k"].toInt()};
    const auto value = ctx->saved_data["values"].toTensorVector(), grad = ctx->saved_data["grads"].toTensorVector();

    const Tensor dy_RD = gather(grads[0].contiguous(), route);              // not weighted yet: dact and act are
    const Tensor dgate_RF = grouped_matmul(dy_RD, value[2], route.groups);  // dact until the activation's backward
    const Tensor dup_RF = at::empty_like(gate_RF), act_RF = at::empty_like(gate_RF);
    const Tensor dweights_TK = at::zeros_like(weights_TK);
    activate_backward(gate_RF, up_RF, dgate_RF, weights_TK, route, dup_RF, act_RF, dweights_TK);
    add_grouped_outer_product(grad[2], dy_RD, act_RF, route.groups);

    const Tensor x_RD = gather(x_TD, route);
    add_grouped_outer_product(grad[0], dgate_RF, x_RD, route.groups);
    add_grouped_outer_product(grad[1], dup_RF, x_RD, route.groups);
    const Tensor by_gate_RD = grouped_matmul(dgate_RF, value[0], route.groups);
    const Tensor by_up_RD = grouped_matmul(dup_RF, value[1], route.groups);
    return {combine(by_gate_RD, by_up_RD, {}, route, x_TD.size(0)), dweights_TK, Tensor(), Tensor(), Tensor()};
  }
};

}  // namespace

Tensor experts(const Tensor& x_TD, const Tensor& weights_TK, const Tensor& expert_ids_TK, const ExpertWeights& weights,
               int64_t first_local_expert, int64_t num_local_experts, CombineWeights combine) {
  const Tensor x = x_TD.contiguous(), gates = weights_TK.contiguous(), ids = expert_ids_TK.contiguous();
  if (!has_kernels(x)) return without_kernels::experts(x, gates, ids, weights, first_local_expert, num_local_experts);
  const Route route = make_route(ids, first_local_expert, num_local_experts);
  const bool before = combine == CombineWeights::kBeforeDown;
  if (!at::GradMode::is_enabled() || !weights.gate_LFD.grad.defined()) {
    const at::NoGradGuard no_grad;
    return Experts::forward(nullptr, x, gates, route, weights, before);
  }
  return Experts::apply(x, gates, route, weights, before);
}

namespace without_kernels {

Tensor experts(const Tensor& x_TD, const Tensor& weights_TK, const Tensor& expert_ids_TK, const ExpertWeights& weights,
               int64_t first_local_expert, int64_t num_local_experts) {
  const PortableForm form = [=](const auto& in) {
    const auto typed = [&](size_t i) { return in[i].to(in[0].scalar_type()); };
    return portable::experts(in[0], in[1], expert_ids_TK, typed(2), typed(3), typed(4), first_local_expert,
                             num_local_experts);
  };
  const std::vector<Weight> all = {weights.gate_LFD, weights.up_LFD, weights.down_LDF};
  if (at::GradMode::is_enabled() && weights.gate_LFD.grad.defined())
    return PortableOp::apply(at::TensorList({x_TD, weights_TK}), all, form);
  const at::NoGradGuard no_grad;
  return form({x_TD, weights_TK, all[0].value, all[1].value, all[2].value});
}

}  // namespace without_kernels

}  // namespace athanor::ops::device
