#include "ops/expert_rows.h"

#include <cmath>
#include <numeric>

#include "kernels/expert_activation.h"
#include "kernels/routing.h"
#include "ops/played.h"
#include "ops/tiles.h"

namespace athanor::ops {
namespace {

// Our tiles take any number of rows. The library compiles a kernel for each number that it meets and keeps a thousand
// of them: 0.2 s and 0.2 GiB in each step as long as every expert has a different count. Padding to multiples of 32
// leaves a few dozen counts, and costs 16 rows of zeros for each expert on average. If experts have fewer rows than
// that anyway, they are not padded.
int64_t row_alignment(bool on_tiles, int64_t choices, int64_t num_local_experts) {
  constexpr int64_t kAlignment = 32;
  return !on_tiles && choices >= num_local_experts * kAlignment ? kAlignment : 1;
}

const float* pointer_if(const Tensor& weights_TK) {
  return weights_TK.defined() ? pointer<float>(weights_TK) : nullptr;
}

Tensor rows_like(const Tensor& x, int64_t rows, int64_t width) { return at::empty({rows, width}, x.options()); }

template <class T>
kernels::ExpertBias<T> bias_of(const Weight& bias, const ExpertRoute& route, int64_t first_column = 0) {
  return {pointer<T>(bias.value), route.offsets.const_data_ptr<int64_t>(), bias.value.size(0), bias.value.size(1),
          first_column};
}

// Adds the bias of each row's expert, times the weight of the row's choice if there are `weights`.
void add_bias(const Tensor& rows, const Weight& bias, int64_t first_column, const float* weights,
              const ExpertRoute& route) {
  if (played("expert_bias", {rows, bias.value}, {rows})) return;
  const int64_t width = rows.size(1);
  with_element(rows, [&](auto* tag) {
    using T = std::decay_t<decltype(*tag)>;
    T* to = pointer<T>(rows);
    for_rows(rows.size(0), width, [&](int64_t begin, int64_t end) {
      kernels::add_expert_bias(bias_of<T>(bias, route, first_column), weights, route.choices(), to, begin, end, width);
    });
  });
}

// Adds what the down projection's bias contributes to the gradient of the choices' weights.
void add_bias_to_weights_gradient(const Tensor& dy_RD, const ExpertRoute& route, const ExpertWeights& w,
                                  const Tensor& dweights_TK) {
  if (played("expert_bias_backward", {dy_RD, w.down_bias_LD.value}, {dweights_TK})) return;
  const int64_t width = dy_RD.size(1);
  with_element(dy_RD, [&](auto* tag) {
    using T = std::decay_t<decltype(*tag)>;
    const T* dy = pointer<T>(dy_RD);
    for_rows(dy_RD.size(0), width, [&](int64_t begin, int64_t end) {
      kernels::expert_bias_backward(bias_of<T>(w.down_bias_LD, route, w.first_output), dy, route.choices(),
                                    pointer<float>(dweights_TK), begin, end, width);
    });
  });
}

// Returns the weight of each row's choice in the type of `like`, [R, 1]; 0 for padding.
Tensor weight_of_rows(const Tensor& weights_TK, const ExpertRoute& route, const Tensor& like) {
  const Tensor of_rows = at::zeros({route.num_rows(), 1}, like.options().dtype(at::kFloat));
  if (like.is_meta()) return of_rows.to(like.scalar_type());
  const float* weights = pointer<float>(weights_TK);
  for (int64_t r = 0; r < route.num_rows(); ++r)
    if (const int64_t choice = route.choices()[r]; choice >= 0) pointer<float>(of_rows)[r] = weights[choice];
  return of_rows.to(like.scalar_type());
}

// Computes silu(gate) · up, or another unit, row by row, times the weight of the row's choice if there are `weights`.
void activate(const Tensor& gate_RF, const Tensor& up_RF, const GatedUnit& unit, const float* weights,
              const ExpertRoute& route, const Tensor& act_RF) {
  if (played("expert_activation", {gate_RF, up_RF}, {act_RF})) return;
  const int64_t width = up_RF.size(1);
  with_element(up_RF, [&](auto* tag) {
    using T = std::decay_t<decltype(*tag)>;
    const T *gate = pointer_or_null<T>(gate_RF), *up = pointer<T>(up_RF);
    T* act = pointer<T>(act_RF);
    for_rows(up_RF.size(0), width, [&](int64_t begin, int64_t end) {
      if (gate)
        kernels::expert_activation(gate, up, weights, route.choices(), act, begin, end, width, unit);
      else
        kernels::expert_gelu(up, weights, route.choices(), act, begin, end, width);
    });
  });
}

// dact becomes dgate, or dup where there is no gate. Sets act · weight, dup and (in dweights) the weights' gradient.
void activate_backward(const ExpertRows& rows, const GatedUnit& unit, const Tensor& dact_RF, const Tensor& weights_TK,
                       const ExpertRoute& route, const Tensor& dup_RF, const Tensor& act_RF,
                       const Tensor& dweights_TK) {
  if (played("expert_activation_backward", {rows.gate_RF, rows.up_RF, dact_RF, weights_TK},
             {dact_RF, dup_RF, act_RF, dweights_TK}))
    return;
  const int64_t width = rows.up_RF.size(1);
  const float* weights = pointer<float>(weights_TK);
  float* dweights = pointer<float>(dweights_TK);
  with_element(rows.up_RF, [&](auto* tag) {
    using T = std::decay_t<decltype(*tag)>;
    const T *gate = pointer_or_null<T>(rows.gate_RF), *up = pointer<T>(rows.up_RF);
    T *dact = pointer<T>(dact_RF), *dup = pointer_or_null<T>(dup_RF), *act = pointer<T>(act_RF);
    for_rows(rows.up_RF.size(0), width, [&](int64_t begin, int64_t end) {
      if (gate)
        kernels::expert_activation_backward(gate, up, dact, dup, act, weights, route.choices(), dweights, begin, end,
                                            width, unit);
      else
        kernels::expert_gelu_backward(up, dact, act, weights, route.choices(), dweights, begin, end, width);
    });
  });
}

// Returns the offsets that experts [first, first + num) have in a played step, each with its share of the choices. On
// the host.
// @param choices  of these experts, or of all if `are_all`.
Tensor played_offsets(int64_t choices, bool are_all, int64_t first, int64_t num, int64_t alignment) {
  const std::vector<double>& shares = played_numbers().expert_shares;
  ATHANOR_ASSERT(first + num <= std::ssize(shares));
  const Tensor offsets = at::zeros({num + 1}, at::kLong);
  auto* offset = offsets.data_ptr<int64_t>();
  const auto local = shares.begin() + first;
  const double sum = are_all ? 1 : std::accumulate(local, local + num, 0.0);
  const double all = static_cast<double>(choices) / sum;
  double before = are_all ? std::accumulate(shares.begin(), local, 0.0) : 0;
  for (int64_t e = 0; e < num; ++e) {
    const double after = before + local[e];
    const int64_t rows = std::llround(after * all) - std::llround(before * all);
    offset[e + 1] = offset[e] + (rows + alignment - 1) / alignment * alignment;
    before = after;
  }
  return offsets;
}

}  // namespace

GroupOffsets ExpertRoute::groups() const {
  const int64_t* offset = offsets.const_data_ptr<int64_t>();
  return {offset, offset + offsets.numel()};
}

ExpertRoute make_expert_route(const Tensor& x, const Tensor& expert_ids_TK, int64_t first_local_expert,
                              int64_t num_local_experts, int64_t local_choices) {
  const auto options = expert_ids_TK.options();
  const int64_t tokens = expert_ids_TK.size(0), k = expert_ids_TK.size(1);
  const int64_t alignment = row_alignment(multiplies_on_tiles(x, ProductKind::kGrouped), tokens * k, num_local_experts);
  ExpertRoute route{at::empty({num_local_experts + 1}, options),
                    at::empty({kernels::max_rows(tokens, k, num_local_experts, alignment)}, options),
                    at::empty({tokens * k}, options), k};
  if (played("sort_choices", {expert_ids_TK}, {route.choice_of_row, route.row_of_choice})) {
    const bool are_all = local_choices < 0;
    route.offsets =
        played_offsets(are_all ? tokens * k : local_choices, are_all, first_local_expert, num_local_experts, alignment);
    return route;
  }
  kernels::sort_choices(pointer<int64_t>(expert_ids_TK), tokens, k, first_local_expert, num_local_experts,
                        pointer<int64_t>(route.offsets), pointer<int64_t>(route.choice_of_row),
                        pointer<int64_t>(route.row_of_choice), alignment);
  return route;
}

Tensor gather_tokens(const Tensor& x_TD, const ExpertRoute& route) {
  const int64_t width = x_TD.size(1);
  Tensor rows_RD = rows_like(x_TD, route.num_rows(), width);
  if (played("gather_rows", {x_TD}, {rows_RD})) return rows_RD;
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

Tensor combine_rows(const Tensor& y_RD, const Tensor& weights_TK, const ExpertRoute& route, int64_t tokens) {
  const int64_t width = y_RD.size(1);
  Tensor out_TD = rows_like(y_RD, tokens, width);
  if (played("combine_rows", {y_RD, weights_TK}, {out_TD})) return out_TD;
  const float* weights = pointer_if(weights_TK);
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

ExpertRows multiply_rows(Tensor x_RD, const Tensor& weights_TK, const ExpertRoute& route, const ExpertWeights& w) {
  const int64_t rows = route.num_rows(), ffn = w.up_LFD.value.size(1), hidden = w.up_LFD.value.size(2);
  const GroupOffsets groups = route.groups();
  ExpertRows result{{}, w.is_gated() ? rows_like(x_RD, rows, ffn) : Tensor(), rows_like(x_RD, rows, ffn)};
  std::vector<GroupedProduct> products;
  if (w.is_gated()) products.push_back({x_RD, w.gate_LFD.value, true, result.gate_RF});
  products.push_back({x_RD, w.up_LFD.value, true, result.up_RF});
  grouped_matmul(groups, products);
  products.clear();
  x_RD.reset();
  if (w.has_biases()) {
    if (w.is_gated()) add_bias(result.gate_RF, w.gate_bias_LF, 0, nullptr, route);
    add_bias(result.up_RF, w.up_bias_LF, 0, nullptr, route);
  }
  const Tensor act_RF = rows_like(result.up_RF, rows, ffn);
  result.y_RD = rows_like(result.up_RF, rows, hidden);
  activate(result.gate_RF, result.up_RF, w.unit, pointer_if(weights_TK), route, act_RF);
  grouped_matmul(groups, {{act_RF, w.down_LDF.value, true, result.y_RD}});
  if (w.has_biases()) add_bias(result.y_RD, w.down_bias_LD, w.first_output, pointer_if(weights_TK), route);
  return result;
}

ExpertRowGradients backward_rows(const ExpertRows& rows, const Tensor& dy_RD, const Tensor& weights_TK,
                                 const ExpertRoute& route, const ExpertWeights& w, const Tensor& dweights_TK) {
  const int64_t num_rows = route.num_rows(), ffn = rows.up_RF.size(1);
  const Tensor dact_RF = rows_like(dy_RD, num_rows, ffn),
               dup_RF = w.is_gated() ? rows_like(dy_RD, num_rows, ffn) : Tensor();
  const Tensor act_RF = rows_like(dy_RD, num_rows, ffn);
  grouped_matmul(route.groups(), {{dy_RD, w.down_LDF.value, false, dact_RF}});
  activate_backward(rows, w.unit, dact_RF, weights_TK, route, dup_RF, act_RF, dweights_TK);
  if (w.has_biases()) add_bias_to_weights_gradient(dy_RD, route, w, dweights_TK);
  return w.is_gated() ? ExpertRowGradients{dact_RF, dup_RF, act_RF} : ExpertRowGradients{{}, dact_RF, act_RF};
}

// A bias is a matrix of one column, whose input is 1, or the weight of the choice where that is multiplied in.
void add_down_gradients(const ExpertRowGradients& rows, const Tensor& dy_RD, const Tensor& weights_TK,
                        const ExpertRoute& route, const ExpertWeights& w) {
  grouped_outer_product(route.groups(), {{dy_RD, rows.act_RF, w.down_LDF.grad}});
  if (!w.has_biases()) return;
  const Tensor outputs = dy_RD.narrow(1, w.first_output, w.down_bias_LD.value.size(1)).contiguous();
  grouped_outer_product(route.groups(),
                        {{outputs, weight_of_rows(weights_TK, route, dy_RD), w.down_bias_LD.grad.unsqueeze(-1)}});
}

void add_gate_up_gradients(const ExpertRowGradients& rows, const Tensor& x_RD, const ExpertRoute& route,
                           const ExpertWeights& w) {
  const GroupOffsets groups = route.groups();
  const auto add = [&](const Tensor& input, const Tensor& of_gate, const Tensor& of_up) {
    std::vector<GroupedOuterProduct> products;
    if (w.is_gated()) products.push_back({rows.dgate_RF, input, of_gate});
    products.push_back({rows.dup_RF, input, of_up});
    grouped_outer_product(groups, products);
  };
  add(x_RD, w.gate_LFD.grad, w.up_LFD.grad);
  if (!w.has_biases()) return;
  const auto column = [](const Weight& bias) { return bias.defined() ? bias.grad.unsqueeze(-1) : Tensor(); };
  add(at::ones({x_RD.size(0), 1}, x_RD.options()), column(w.gate_bias_LF), column(w.up_bias_LF));
}

void input_gradients(const ExpertRowGradients& rows, const ExpertRoute& route, const ExpertWeights& w,
                     const Tensor& dx_RD) {
  if (w.is_gated())
    grouped_matmul(route.groups(), {{rows.dgate_RF, w.gate_LFD.value, false, dx_RD, rows.dup_RF, w.up_LFD.value}});
  else
    grouped_matmul(route.groups(), {{rows.dup_RF, w.up_LFD.value, false, dx_RD}});
}

}  // namespace athanor::ops
