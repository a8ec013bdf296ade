#include "ops/experts.h"

#include "ops/device.h"
#include "ops/device/expert_rows.h"
#include "ops/device/on_stream.h"
#include "ops/device/portable_op.h"

namespace athanor::ops::device {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Experts : torch::autograd::Function<Experts> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x_TD, const Tensor& weights_TK, const RowRoute& route,
                        const ExpertWeights& w, bool weigh_before_down) {
    const Tensor none;
    const ExpertRows rows = multiply_rows(gather_rows(x_TD, route), weigh_before_down ? weights_TK : none, route, w);
    if (ctx) {
      ctx->save_for_backward({x_TD, weights_TK, rows.gate_RF, rows.up_RF});
      ctx->saved_data["route"] =
          std::vector<Tensor>{route.groups.offsets, route.groups.ends, route.choice_of_row, route.row_of_choice};
      ctx->saved_data["k"] = route.k;
      ctx->saved_data["experts"] = c10::IValue::make_capsule(c10::make_intrusive<KeptExperts>(w));
    }
    return combine_rows(rows.y_RD, none, weigh_before_down ? none : weights_TK, route, x_TD.size(0));
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    const Tensor &x_TD = saved[0], &weights_TK = saved[1];
    const auto parts = ctx->saved_data["route"].toTensorVector();
    const RowRoute route{Groups(parts[0], parts[1]), parts[2], parts[3], ctx->saved_data["k"].toInt()};
    const auto kept = ctx->saved_data["experts"].toCapsule();
    const ExpertWeights& w = static_cast<const KeptExperts&>(*kept).weights;

    const Tensor dweights_TK = at::zeros_like(weights_TK);
    const Tensor dy_RD = gather_rows(grads[0].contiguous(), route);  // not weighted yet: dact and act are
    const ExpertRowGradients rows = backward_rows({{}, saved[2], saved[3]}, dy_RD, weights_TK, route, w, dweights_TK);
    add_weight_gradients(rows, gather_rows(x_TD, route), dy_RD, weights_TK, route, w);
    return {input_gradients(rows, route, w, x_TD.size(0)), dweights_TK, Tensor(), Tensor(), Tensor()};
  }
};

}  // namespace

Tensor experts(const Tensor& x_TD, const Tensor& weights_TK, const Tensor& expert_ids_TK, const ExpertWeights& weights,
               int64_t first_local_expert, int64_t num_local_experts, CombineWeights combine) {
  const Tensor x = x_TD.contiguous(), gates = weights_TK.contiguous(), ids = expert_ids_TK.contiguous();
  if (!has_kernels(x)) return without_kernels::experts(x, gates, ids, weights, first_local_expert, num_local_experts);
  const RowRoute route = make_row_route(ids, first_local_expert, num_local_experts, ids.numel());
  const bool before = combine == CombineWeights::kBeforeDown;
  if (!at::GradMode::is_enabled() || !weights.up_LFD.grad.defined()) {
    const at::NoGradGuard no_grad;
    return Experts::forward(nullptr, x, gates, route, weights, before);
  }
  return Experts::apply(x, gates, route, weights, before);
}

namespace without_kernels {

Tensor experts(const Tensor& x_TD, const Tensor& weights_TK, const Tensor& expert_ids_TK, const ExpertWeights& weights,
               int64_t first_local_expert, int64_t num_local_experts) {
  const PortableForm form = [=](const auto& in) {
    std::vector<Tensor> typed;
    for (size_t i = 2; i < in.size(); ++i) typed.push_back(in[i].to(in[0].scalar_type()));
    return portable::experts(in[0], in[1], expert_ids_TK, weights.with_values(typed), first_local_expert,
                             num_local_experts);
  };
  const std::vector<Weight> all = weights.all();
  if (at::GradMode::is_enabled() && weights.up_LFD.grad.defined())
    return PortableOp::apply(at::TensorList({x_TD, weights_TK}), all, form);
  const at::NoGradGuard no_grad;
  std::vector<Tensor> in = {x_TD, weights_TK};
  for (const Weight& weight : all) in.push_back(weight.value);
  return form(in);
}

}  // namespace without_kernels

}  // namespace athanor::ops::device
