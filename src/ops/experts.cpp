// Shapes: T tokens, K choices of each, R rows received (choices of local experts), L local experts, D hidden, F
// intermediate.

#include "ops/experts.h"

#include <torch/csrc/autograd/custom_function.h>

#include "ops/device.h"
#include "ops/expert_rows.h"

namespace athanor::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Experts : torch::autograd::Function<Experts> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x_TD, const Tensor& weights_TK, const ExpertRoute& route,
                        const ExpertWeights& w, bool weigh_before_down) {
    const Tensor none;
    const ExpertRows rows = multiply_rows(gather_tokens(x_TD, route), weigh_before_down ? weights_TK : none, route, w);
    if (ctx) {
      ctx->save_for_backward({x_TD, weights_TK, rows.gate_RF, rows.up_RF});
      ctx->saved_data["route"] = std::vector<Tensor>{route.offsets, route.choice_of_row, route.row_of_choice};
      ctx->saved_data["k"] = route.k;
      ctx->saved_data["values"] = std::vector<Tensor>{w.gate_LFD.value, w.up_LFD.value, w.down_LDF.value};
      ctx->saved_data["grads"] = std::vector<Tensor>{w.gate_LFD.grad, w.up_LFD.grad, w.down_LDF.grad};
    }
    return combine_rows(rows.y_RD, weigh_before_down ? none : weights_TK, route, x_TD.size(0));
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    const Tensor &x_TD = saved[0], &weights_TK = saved[1];
    const auto parts = ctx->saved_data["route"].toTensorVector();
    const ExpertRoute route{parts[0], parts[1], parts[2], ctx->saved_data["k"].toInt()};
    const auto value = ctx->saved_data["values"].toTensorVector(), grad = ctx->saved_data["grads"].toTensorVector();
    const ExpertWeights w{{value[0], grad[0]}, {value[1], grad[1]}, {value[2], grad[2]}};
    const GroupOffsets groups = route.groups();

    const Tensor dy_RD = gather_tokens(grads[0].contiguous(), route);  // not weighted yet: dact and act are
    const Tensor dweights_TK = at::zeros_like(weights_TK);
    const ExpertRowGradients rows = backward_rows({{}, saved[2], saved[3]}, dy_RD, weights_TK, route, w, dweights_TK);
    grouped_outer_product(groups, {{dy_RD, rows.act_RF, grad[2]}});

    const Tensor x_RD = gather_tokens(x_TD, route);
    grouped_outer_product(groups, {{rows.dgate_RF, x_RD, grad[0]}, {rows.dup_RF, x_RD, grad[1]}});
    const Tensor& dx_RD = dy_RD;  // no longer needed
    input_gradients(rows, route, w, dx_RD);
    return {combine_rows(dx_RD, {}, route, x_TD.size(0)), dweights_TK, Tensor(), Tensor(), Tensor()};
  }
};

}  // namespace

Tensor experts(const Tensor& x_TD, const Tensor& weights_TK, const Tensor& expert_ids_TK, const ExpertWeights& weights,
               int64_t first_local_expert, int64_t num_local_experts, CombineWeights combine) {
  if (device::takes(x_TD))
    return device::experts(x_TD, weights_TK, expert_ids_TK, weights, first_local_expert, num_local_experts, combine);
  const ExpertRoute route = make_expert_route(x_TD, expert_ids_TK.contiguous(), first_local_expert, num_local_experts);
  const Tensor x = x_TD.contiguous(), gates = weights_TK.contiguous();
  const bool before = combine == CombineWeights::kBeforeDown;
  if (!at::GradMode::is_enabled() || !weights.gate_LFD.grad.defined()) {
    const at::NoGradGuard no_grad;
    return Experts::forward(nullptr, x, gates, route, weights, before);
  }
  return Experts::apply(x, gates, route, weights, before);
}

namespace portable {

Tensor experts(const Tensor& x_TD, const Tensor& weights_TK, const Tensor& expert_ids_TK, const Tensor& gate_LFD,
               const Tensor& up_LFD, const Tensor& down_LDF, int64_t first_local_expert, int64_t num_local_experts) {
  Tensor out = at::zeros(x_TD.sizes(), x_TD.options().dtype(wide_type(x_TD)));
  for (int64_t e = 0; e < num_local_experts; ++e) {
    // The weight of this expert for each token: zero for tokens that did not choose it.
    const Tensor gate_T = (weights_TK * (expert_ids_TK == first_local_expert + e)).sum(1);
    const Tensor act = at::silu(at::linear(x_TD, gate_LFD[e])) * at::linear(x_TD, up_LFD[e]);
    out = out + gate_T.unsqueeze(1) * at::linear(act, down_LDF[e]).to(wide_type(x_TD));
  }
  return out.to(x_TD.scalar_type());
}

}  // namespace portable
}  // namespace athanor::ops
