// Shapes: T tokens, K choices of each, R rows received (choices of local experts), L local experts, D hidden, F
// intermediate.

#include "ops/experts.h"

#include <torch/csrc/autograd/custom_function.h>

#include "kernels/expert_activation.h"
#include "kernels/routing.h"
#include "ops/device.h"
#include "ops/grouped_matmul.h"
#include "ops/tiles.h"

namespace athanor::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Which row belongs to which choice, sorted by expert.
struct Route {
  Tensor offsets, choice_of_row, row_of_choice;  // int64, kept for backward: routing is never redone
  int64_t k;

  int64_t num_rows() const { return offsets.const_data_ptr<int64_t>()[offsets.numel() - 1]; }
  const int64_t* choices() const { return choice_of_row.const_data_ptr<int64_t>(); }
  const int64_t* rows() const { return row_of_choice.const_data_ptr<int64_t>(); }

  GroupOffsets groups() const {
    const int64_t* offset = offsets.const_data_ptr<int64_t>();
    return {offset, offset + offsets.numel()};
  }
};

// Tiles of ours take any number of rows. The library compiles a kernel for each number it meets and keeps a thousand of
// them: 0.2 s and 0.2 GiB a step while every expert has another count. Padding to multiples of 32 leaves a few dozen
// counts, for 16 rows of zeros an expert on average; experts with fewer rows than that anyway are left as they are.
int64_t row_alignment(bool on_tiles, int64_t choices, int64_t num_local_experts) {
  constexpr int64_t kAlignment = 32;
  return !on_tiles && choices >= num_local_experts * kAlignment ? kAlignment : 1;
}

Route make_route(const Tensor& expert_ids_TK, bool on_tiles, int64_t first_local_expert, int64_t num_local_experts) {
  const auto options = expert_ids_TK.options();
  const int64_t tokens = expert_ids_TK.size(0), k = expert_ids_TK.size(1);
  const int64_t alignment = row_alignment(on_tiles, tokens * k, num_local_experts);
  Route route{at::empty({num_local_experts + 1}, options),
              at::empty({kernels::max_rows(tokens, k, num_local_experts, alignment)}, options),
              at::empty({tokens * k}, options), k};
  kernels::sort_choices(pointer<int64_t>(expert_ids_TK), tokens, k, first_local_expert, num_local_experts,
                        pointer<int64_t>(route.offsets), pointer<int64_t>(route.choice_of_row),
                        pointer<int64_t>(route.row_of_choice), alignment);
  return route;
}

Tensor gather(const Tensor& x_TD, const Route& route) {
  const int64_t width = x_TD.size(1);
  Tensor rows_RD = at::empty({route.num_rows(), width}, x_TD.options());
  with_element(x_TD, [&](auto* tag) {
    using T = std::decay_t<decltype(*tag)>;
    const T* from = pointer<T>(x_TD);
    T* to = pointer<T>(rows_RD);
    for_rows(route.num_rows(), width, [&](int64_t begin, int64_t end) {
      kernels::gather_rows(from, route.choices(), to, begin, end, route.k, width);
    });
  });
  return rows_RD;
}

// Sums each token's rows, weighted or (the backward of gather) not.
Tensor combine(const Tensor& y_RD, const float* weights, const Route& route, int64_t tokens) {
  const int64_t width = y_RD.size(1);
  Tensor out_TD = at::empty({tokens, width}, y_RD.options());
  with_element(y_RD, [&](auto* tag) {
    using T = std::decay_t<decltype(*tag)>;
    const T* from = pointer<T>(y_RD);
    T* to = pointer<T>(out_TD);
    for_rows(tokens, width * route.k, [&](int64_t begin, int64_t end) {
      kernels::combine_rows(from, weights, route.rows(), to, begin, end, route.k, width);
    });
  });
  return out_TD;
}

// Row by row, silu(gate) · up, times the weight of the row's choice if `weights` is not null.
void activate(const Tensor& gate_RF, const Tensor& up_RF, const float* weights, const Route& route,
              const Tensor& act_RF) {
  const int64_t width = gate_RF.size(1);
  with_element(gate_RF, [&](auto* tag) {
    using T = std::decay_t<decltype(*tag)>;
    const T *gate = pointer<T>(gate_RF), *up = pointer<T>(up_RF);
    T* act = pointer<T>(act_RF);
    for_rows(gate_RF.size(0), width, [&](int64_t begin, int64_t end) {
      kernels::expert_activation(gate, up, weights, route.choices(), act, begin, end, width);
    });
  });
}

// dact becomes dgate; answers act · weight, dup and (in dweights) the weights' gradient.
void activate_backward(const Tensor& gate_RF, const Tensor& up_RF, const Tensor& dact_RF, const Tensor& weights_TK,
                       const Route& route, const Tensor& dup_RF, const Tensor& act_RF, const Tensor& dweights_TK) {
  const int64_t width = gate_RF.size(1);
  with_element(gate_RF, [&](auto* tag) {
    using T = std::decay_t<decltype(*tag)>;
    const T *gate = pointer<T>(gate_RF), *up = pointer<T>(up_RF);
    T *dact = pointer<T>(dact_RF), *dup = pointer<T>(dup_RF), *act = pointer<T>(act_RF);
    for_rows(gate_RF.size(0), width, [&](int64_t begin, int64_t end) {
      kernels::expert_activation_backward(gate, up, dact, dup, act, pointer<float>(weights_TK), route.choices(),
                                          pointer<float>(dweights_TK), begin, end, width);
    });
  });
}

Tensor rows_like(const Tensor& x, int64_t rows, int64_t width) { return at::empty({rows, width}, x.options()); }

struct Experts : torch::autograd::Function<Experts> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x_TD, const Tensor& weights_TK, const Route& route,
                        const ExpertWeights& w, bool weigh_before_down) {
    const int64_t rows = route.num_rows(), ffn = w.gate_LFD.value.size(1), hidden = x_TD.size(1);
    const float* weights = pointer<float>(weights_TK);
    const GroupOffsets groups = route.groups();
    const Tensor gate_RF = rows_like(x_TD, rows, ffn), up_RF = rows_like(x_TD, rows, ffn);
    {
      const Tensor x_RD = gather(x_TD, route);
      grouped_matmul(groups, {{x_RD, w.gate_LFD.value, true, gate_RF}, {x_RD, w.up_LFD.value, true, up_RF}});
    }
    const Tensor act_RF = rows_like(x_TD, rows, ffn), y_RD = rows_like(x_TD, rows, hidden);
    activate(gate_RF, up_RF, weigh_before_down ? weights : nullptr, route, act_RF);
    grouped_matmul(groups, {{act_RF, w.down_LDF.value, true, y_RD}});
    if (ctx) {
      ctx->save_for_backward({x_TD, weights_TK, gate_RF, up_RF});
      ctx->saved_data["route"] = std::vector<Tensor>{route.offsets, route.choice_of_row, route.row_of_choice};
      ctx->saved_data["k"] = route.k;
      ctx->saved_data["values"] = std::vector<Tensor>{w.gate_LFD.value, w.up_LFD.value, w.down_LDF.value};
      ctx->saved_data["grads"] = std::vector<Tensor>{w.gate_LFD.grad, w.up_LFD.grad, w.down_LDF.grad};
    }
    return combine(y_RD, weigh_before_down ? nullptr : weights, route, x_TD.size(0));
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    const Tensor &x_TD = saved[0], &weights_TK = saved[1], &gate_RF = saved[2], &up_RF = saved[3];
    const auto route_parts = ctx->saved_data["route"].toTensorVector();
    const Route route{route_parts[0], route_parts[1], route_parts[2], ctx->saved_data["k"].toInt()};
    const auto value = ctx->saved_data["values"].toTensorVector(), grad = ctx->saved_data["grads"].toTensorVector();
    const int64_t rows = route.num_rows(), ffn = gate_RF.size(1);
    const GroupOffsets groups = route.groups();

    const Tensor dy_RD = gather(grads[0].contiguous(), route);  // not yet weighted: dact and act are
    const Tensor dact_RF = rows_like(x_TD, rows, ffn), dup_RF = rows_like(x_TD, rows, ffn);
    const Tensor act_RF = rows_like(x_TD, rows, ffn), dweights_TK = at::zeros_like(weights_TK);
    grouped_matmul(groups, {{dy_RD, value[2], false, dact_RF}});
    activate_backward(gate_RF, up_RF, dact_RF, weights_TK, route, dup_RF, act_RF, dweights_TK);
    const Tensor& dgate_RF = dact_RF;
    grouped_outer_product(groups, {{dy_RD, act_RF, grad[2]}});

    const Tensor x_RD = gather(x_TD, route);
    grouped_outer_product(groups, {{dgate_RF, x_RD, grad[0]}, {dup_RF, x_RD, grad[1]}});
    const Tensor& dx_RD = dy_RD;  // no longer needed
    grouped_matmul(groups, {{dgate_RF, value[0], false, dx_RD, dup_RF, value[1]}});
    return {combine(dx_RD, nullptr, route, x_TD.size(0)), dweights_TK, Tensor(), Tensor(), Tensor()};
  }
};

}  // namespace

Tensor experts(const Tensor& x_TD, const Tensor& weights_TK, const Tensor& expert_ids_TK, const ExpertWeights& weights,
               int64_t first_local_expert, int64_t num_local_experts, CombineWeights combine) {
  if (device::takes(x_TD))
    return device::experts(x_TD, weights_TK, expert_ids_TK, weights, first_local_expert, num_local_experts, combine);
  const Route route =
      make_route(expert_ids_TK.contiguous(), multiplies_on_tiles(x_TD), first_local_expert, num_local_experts);
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
    // The weight of this expert for each token: zero where it was not chosen.
    const Tensor gate_T = (weights_TK * (expert_ids_TK == first_local_expert + e)).sum(1);
    const Tensor act = at::silu(at::linear(x_TD, gate_LFD[e])) * at::linear(x_TD, up_LFD[e]);
    out = out + gate_T.unsqueeze(1) * at::linear(act, down_LDF[e]).to(wide_type(x_TD));
  }
  return out.to(x_TD.scalar_type());
}

}  // namespace portable
}  // namespace athanor::ops
