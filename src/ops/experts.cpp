// Shapes: T tokens, K choices of each, R rows received (choices of local experts), L local experts, D hidden, F
// intermediate.

#include "ops/experts.h"

#include <torch/csrc/autograd/custom_function.h>

#include "kernels/routing.h"
#include "ops/linear.h"
#include "ops/swiglu.h"

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

  template <class F>
  void for_each_expert(F f) const {
    const int64_t* offset = offsets.const_data_ptr<int64_t>();
    for (int64_t e = 0; e + 1 < offsets.numel(); ++e) {
      if (offset[e + 1] > offset[e]) f(e, offset[e], offset[e + 1] - offset[e]);
    }
  }
};

// The library compiles a kernel for each number of rows it meets and keeps a thousand of them: 0.2 s and 0.2 GiB a step
// while every expert has another count. Padding to multiples of 32 leaves a few dozen counts, for 16 rows of zeros an
// expert on average; experts with fewer rows than that anyway are left as they are.
int64_t row_alignment(int64_t choices, int64_t num_local_experts) {
  constexpr int64_t kAlignment = 32;
  return choices >= num_local_experts * kAlignment ? kAlignment : 1;
}

Route make_route(const Tensor& expert_ids_TK, int64_t first_local_expert, int64_t num_local_experts) {
  const auto options = expert_ids_TK.options();
  const int64_t tokens = expert_ids_TK.size(0), k = expert_ids_TK.size(1);
  const int64_t alignment = row_alignment(tokens * k, num_local_experts);
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

// dweights from ⟨act, dact⟩; both rows are then scaled by their weight.
void weigh(const Tensor& act_RF, const Tensor& dact_RF, const Tensor& weights_TK, const Tensor& dweights_TK,
           const Route& route) {
  const int64_t width = act_RF.size(1);
  with_element(act_RF, [&](auto* tag) {
    using T = std::decay_t<decltype(*tag)>;
    T *act = pointer<T>(act_RF), *dact = pointer<T>(dact_RF);
    for_rows(act_RF.size(0), width, [&](int64_t begin, int64_t end) {
      kernels::weigh_rows(act, dact, pointer<float>(weights_TK), route.choices(), pointer<float>(dweights_TK), begin,
                          end, width);
    });
  });
}

Tensor rows_like(const Tensor& x, int64_t rows, int64_t width) { return at::empty({rows, width}, x.options()); }

struct Experts : torch::autograd::Function<Experts> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x_TD, const Tensor& weights_TK, const Route& route,
                        const ExpertWeights& w) {
    const int64_t rows = route.num_rows(), ffn = w.gate_LFD.value.size(1), hidden = x_TD.size(1);
    const Tensor x_RD = gather(x_TD, route);
    const Tensor gate_RF = rows_like(x_TD, rows, ffn), up_RF = rows_like(x_TD, rows, ffn);
    const Tensor act_RF = rows_like(x_TD, rows, ffn), y_RD = rows_like(x_TD, rows, hidden);
    route.for_each_expert([&](int64_t e, int64_t begin, int64_t count) {
      Tensor gate = gate_RF.narrow(0, begin, count), up = up_RF.narrow(0, begin, count);
      const Tensor x = x_RD.narrow(0, begin, count);
      at::mm_out(gate, x, w.gate_LFD.value[e].t());
      at::mm_out(up, x, w.up_LFD.value[e].t());
    });
    swiglu_into(gate_RF, up_RF, act_RF);
    route.for_each_expert([&](int64_t e, int64_t begin, int64_t count) {
      Tensor y = y_RD.narrow(0, begin, count);
      at::mm_out(y, act_RF.narrow(0, begin, count), w.down_LDF.value[e].t());
    });
    if (ctx) {
      ctx->save_for_backward({x_TD, weights_TK, gate_RF, up_RF});
      ctx->saved_data["route"] = std::vector<Tensor>{route.offsets, route.choice_of_row, route.row_of_choice};
      ctx->saved_data["k"] = route.k;
      ctx->saved_data["values"] = std::vector<Tensor>{w.gate_LFD.value, w.up_LFD.value, w.down_LDF.value};
      ctx->saved_data["grads"] = std::vector<Tensor>{w.gate_LFD.grad, w.up_LFD.grad, w.down_LDF.grad};
    }
    return combine(y_RD, pointer<float>(weights_TK), route, x_TD.size(0));
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    const Tensor &x_TD = saved[0], &weights_TK = saved[1], &gate_RF = saved[2], &up_RF = saved[3];
    const auto route_parts = ctx->saved_data["route"].toTensorVector();
    const Route route{route_parts[0], route_parts[1], route_parts[2], ctx->saved_data["k"].toInt()};
    const auto value = ctx->saved_data["values"].toTensorVector(), grad = ctx->saved_data["grads"].toTensorVector();
    const int64_t rows = route.num_rows(), ffn = gate_RF.size(1), hidden = x_TD.size(1);

    const Tensor dy_RD = gather(grads[0].contiguous(), route);  // not yet weighted
    const Tensor act_RF = rows_like(x_TD, rows, ffn), dact_RF = rows_like(x_TD, rows, ffn);
    swiglu_into(gate_RF, up_RF, act_RF);
    route.for_each_expert([&](int64_t e, int64_t begin, int64_t count) {
      Tensor dact = dact_RF.narrow(0, begin, count);
      at::mm_out(dact, dy_RD.narrow(0, begin, count), value[2][e]);
    });
    const Tensor dweights_TK = at::zeros_like(weights_TK);
    weigh(act_RF, dact_RF, weights_TK, dweights_TK, route);
    route.for_each_expert([&](int64_t e, int64_t begin, int64_t count) {
      add_outer_product(grad[2][e], dy_RD.narrow(0, begin, count), act_RF.narrow(0, begin, count));
    });

    const Tensor dgate_RF = act_RF, dup_RF = rows_like(x_TD, rows, ffn);  // the activation is no longer needed
    swiglu_backward_into(dact_RF, gate_RF, up_RF, dgate_RF, dup_RF);
    const Tensor x_RD = gather(x_TD, route), dx_RD = rows_like(x_TD, rows, hidden);
    route.for_each_expert([&](int64_t e, int64_t begin, int64_t count) {
      const Tensor dgate = dgate_RF.narrow(0, begin, count), dup = dup_RF.narrow(0, begin, count);
      const Tensor x = x_RD.narrow(0, begin, count);
      add_outer_product(grad[0][e], dgate, x);
      add_outer_product(grad[1][e], dup, x);
      Tensor dx = dx_RD.narrow(0, begin, count);
      at::mm_out(dx, dgate, value[0][e]);
      dx.addmm_(dup, value[1][e]);
    });
    return {combine(dx_RD, nullptr, route, x_TD.size(0)), dweights_TK, Tensor(), Tensor()};
  }
};

}  // namespace

Tensor experts(const Tensor& x_TD, const Tensor& weights_TK, const Tensor& expert_ids_TK, const ExpertWeights& weights,
               int64_t first_local_expert, int64_t num_local_experts) {
  const Route route = make_route(expert_ids_TK.contiguous(), first_local_expert, num_local_experts);
  const Tensor x = x_TD.contiguous(), gates = weights_TK.contiguous();
  if (!at::GradMode::is_enabled() || !weights.gate_LFD.grad.defined()) {
    const at::NoGradGuard no_grad;
    return Experts::forward(nullptr, x, gates, route, weights);
  }
  return Experts::apply(x, gates, route, weights);
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
