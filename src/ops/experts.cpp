// Shapes: T tokens, K choices of each, R rows received (choices of local experts), L local experts, D hidden, F
// intermediate.

#include "ops/experts.h"

#include <torch/csrc/autograd/custom_function.h>

#include "ops/device.h"
#include "ops/expert_rows.h"
#include "ops/gelu.h"

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
      ctx->saved_data["experts"] = c10::IValue::make_capsule(c10::make_intrusive<KeptExperts>(w));
    }
    return combine_rows(rows.y_RD, weigh_before_down ? none : weights_TK, route, x_TD.size(0));
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    const Tensor &x_TD = saved[0], &weights_TK = saved[1];
    const auto parts = ctx->saved_data["route"].toTensorVector();
    const ExpertRoute route{parts[0], parts[1], parts[2], ctx->saved_data["k"].toInt()};
    const auto kept = ctx->saved_data["experts"].toCapsule();
    const ExpertWeights& w = static_cast<const KeptExperts&>(*kept).weights;

    const Tensor dy_RD = gather_tokens(grads[0].contiguous(), route);  // not weighted yet: dact and act are
    const Tensor dweights_TK = at::zeros_like(weights_TK);
    const ExpertRowGradients rows = backward_rows({{}, saved[2], saved[3]}, dy_RD, weights_TK, route, w, dweights_TK);
    add_down_gradients(rows, dy_RD, weights_TK, route, w);
    const Tensor x_RD = gather_tokens(x_TD, route);
    add_gate_up_gradients(rows, x_RD, route, w);
    const Tensor& dx_RD = dy_RD;  // no longer needed
    input_gradients(rows, route, w, dx_RD);
    return {combine_rows(dx_RD, {}, route, x_TD.size(0)), dweights_TK, Tensor(), Tensor(), Tensor()};
  }
};

}  // namespace

std::vector<Weight> ExpertWeights::all() const {
  std::vector<Weight> weights;
  for (const Weight* weight : {&gate_LFD, &up_LFD, &down_LDF, &gate_bias_LF, &up_bias_LF, &down_bias_LD})
    if (weight->defined()) weights.push_back(*weight);
  return weights;
}

ExpertWeights ExpertWeights::with_values(const std::vector<Tensor>& values) const {
  ExpertWeights same = *this;
  size_t next = 0;
  for (Weight* weight :
       {&same.gate_LFD, &same.up_LFD, &same.down_LDF, &same.gate_bias_LF, &same.up_bias_LF, &same.down_bias_LD})
    if (weight->defined()) *weight = {values[next++], {}};
  return same;
}

ExpertWeights make_experts(const ExpertForm& form, int64_t experts, int64_t intermediate, int64_t hidden,
                           const std::function<Weight(at::IntArrayRef)>& make) {
  ExpertWeights w;
  w.unit = form.unit;
  if (form.is_gated) w.gate_LFD = make({experts, intermediate, hidden});
  w.up_LFD = make({experts, intermediate, hidden});
  w.down_LDF = make({experts, hidden, intermediate});
  if (!form.has_biases) return w;
  if (form.is_gated) w.gate_bias_LF = make({experts, intermediate});
  w.up_bias_LF = make({experts, intermediate});
  w.down_bias_LD = make({experts, hidden});
  return w;
}

Tensor experts(const Tensor& x_TD, const Tensor& weights_TK, const Tensor& expert_ids_TK, const ExpertWeights& weights,
               int64_t first_local_expert, int64_t num_local_experts, CombineWeights combine) {
  if (device::takes(x_TD))
    return device::experts(x_TD, weights_TK, expert_ids_TK, weights, first_local_expert, num_local_experts, combine);
  const ExpertRoute route = make_expert_route(x_TD, expert_ids_TK.contiguous(), first_local_expert, num_local_experts);
  const Tensor x = x_TD.contiguous(), gates = weights_TK.contiguous();
  const bool before = combine == CombineWeights::kBeforeDown;
  if (!at::GradMode::is_enabled() || !weights.up_LFD.grad.defined()) {
    const at::NoGradGuard no_grad;
    return Experts::forward(nullptr, x, gates, route, weights, before);
  }
  return Experts::apply(x, gates, route, weights, before);
}

namespace portable {
namespace {

Tensor gated_unit(const Tensor& gate, const Tensor& up, const GatedUnit& unit) {
  if (unit.is_swiglu()) return at::silu(gate) * up;
  const Tensor g = gate.clamp_max(unit.limit), u = up.clamp(-unit.limit, unit.limit);
  return g * at::sigmoid(g * unit.slope) * (u + unit.offset);
}

// Returns the bias of an expert's outputs, with zeros for those of other tensor ranks.
Tensor down_bias(const ExpertWeights& w, int64_t expert, const Tensor& y_TD) {
  const Tensor bias = w.down_bias_LD.value[expert].to(y_TD.scalar_type());
  return at::constant_pad_nd(bias, {w.first_output, y_TD.size(1) - w.first_output - bias.size(0)});
}

}  // namespace

Tensor experts(const Tensor& x_TD, const Tensor& weights_TK, const Tensor& expert_ids_TK, const ExpertWeights& w,
               int64_t first_local_expert, int64_t num_local_experts) {
  Tensor out = at::zeros(x_TD.sizes(), x_TD.options().dtype(wide_type(x_TD)));
  for (int64_t e = 0; e < num_local_experts; ++e) {
    // The weight of this expert for each token: zero for tokens that did not choose it.
    const Tensor gate_T = (weights_TK * (expert_ids_TK == first_local_expert + e)).sum(1);
    const auto bias = [&](const Weight& b) { return b.defined() ? std::optional(b.value[e]) : std::nullopt; };
    const Tensor up = at::linear(x_TD, w.up_LFD.value[e], bias(w.up_bias_LF));
    const Tensor act = w.is_gated()
                           ? gated_unit(at::linear(x_TD, w.gate_LFD.value[e], bias(w.gate_bias_LF)), up, w.unit)
                           : portable::gelu(up, GeluForm::kTanh);
    const Tensor y_TD = at::linear(act, w.down_LDF.value[e]).to(wide_type(x_TD));
    out = out + gate_T.unsqueeze(1) * (w.has_biases() ? y_TD + down_bias(w, e, y_TD) : y_TD);
  }
  return out.to(x_TD.scalar_type());
}

}  // namespace portable
}  // namespace athanor::ops
