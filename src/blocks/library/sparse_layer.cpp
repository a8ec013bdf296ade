#include "blocks/library/sparse_layer.h"

#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include <utility>

#include "base/error.h"
#include "ops/experts.h"

namespace athanor::inline blocks {
namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The experts' matrices in the two tensors that hold them. Products on devices take none between which there is other
// memory: there the halves are copied.
ops::ExpertWeights experts_of(const Tensor& gate_up_EGD, const Tensor& down_EDF) {
  const int64_t ffn = down_EDF.size(2);
  const auto half = [&](int64_t first) {
    const Tensor view = gate_up_EGD.detach().narrow(1, first, ffn);
    return Weight{view.is_cpu() ? view : view.contiguous(), {}};
  };
  return {half(0), half(ffn), {down_EDF.detach(), {}}};
}

// What forward leaves for backward: a graph of its own, whose weights have buckets for their gradients.
struct Kept : torch::CustomClassHolder {
  Tensor x, weights, y;
  ops::ExpertWeights experts;

  // Buckets get memory when backward needs them.
  void add_buckets() {
    for (Weight* weight : {&experts.gate_LFD, &experts.up_LFD, &experts.down_LDF})
      weight->grad = at::empty({0}, x.options().dtype(at::kFloat));
  }
};

// The gradients of the two tensors, in fp32, where the buckets have their memory.
struct Gradients {
  Tensor gate_up_EGD, down_EDF;
};

void give_memory(const Tensor& bucket, const Tensor& memory) {
  Tensor to = bucket;
  to.set_(memory.storage(), memory.storage_offset(), memory.sizes(), memory.strides());
}

// Gives the buckets memory that is zero: on the host the halves of one tensor, since products add between other memory
// there (see experts_of). No tensor but the result itself refers to it, so that autograd keeps it and makes no copy.
Gradients fill_buckets(const ops::ExpertWeights& experts) {
  const auto zeros = [](const Tensor& bucket, at::IntArrayRef sizes) { return at::zeros(sizes, bucket.options()); };
  const Tensor &gate = experts.gate_LFD.grad, &up = experts.up_LFD.grad, &down = experts.down_LDF.grad;
  const auto shape = experts.up_LFD.value.sizes();
  Gradients gradients{zeros(gate, {shape[0], 2 * shape[1], shape[2]}), zeros(down, experts.down_LDF.value.sizes())};
  give_memory(down, gradients.down_EDF);
  const auto half = [&](int64_t first) {
    const Tensor view = gradients.gate_up_EGD.narrow(1, first, shape[1]);
    return view.is_cpu() ? view : at::zeros(shape, view.options());
  };
  give_memory(gate, half(0));
  give_memory(up, half(shape[1]));
  return gradients;
}

// Brings halves that have memory of their own together.
void join_halves(const Gradients& gradients, const ops::ExpertWeights& experts) {
  if (gradients.gate_up_EGD.is_cpu()) return;
  Tensor to = gradients.gate_up_EGD;
  at::cat_out(to, {experts.gate_LFD.grad, experts.up_LFD.grad}, 1);
}

struct ExpertLayer : torch::autograd::Function<ExpertLayer> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x_TD, const Tensor& weights_TK, const Tensor& ids_TK,
                        const Tensor& gate_up_EGD, const Tensor& down_EDF) {
    auto kept = c10::make_intrusive<Kept>();
    kept->x = x_TD.detach().requires_grad_();
    kept->weights = weights_TK.detach().requires_grad_();
    kept->experts = experts_of(gate_up_EGD, down_EDF);
    kept->add_buckets();
    const at::AutoGradMode with_gradients(true);
    kept->y = ops::experts(kept->x, kept->weights, ids_TK, kept->experts, 0, down_EDF.size(0));
    ctx->saved_data["kept"] = c10::IValue::make_capsule(kept);
    return kept->y.detach();
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    ATHANOR_CHECK_AS(Error, !at::GradMode::is_enabled(),
                     "sparse layer: it has no gradients of gradients; go backward without create_graph");
    const auto capsule = ctx->saved_data["kept"].toCapsule();
    const auto& kept = static_cast<const Kept&>(*capsule);
    const Gradients gradients = fill_buckets(kept.experts);
    const auto of_inputs = torch::autograd::grad({kept.y}, {kept.x, kept.weights}, {grads[0]});
    join_halves(gradients, kept.experts);
    const auto type = kept.x.scalar_type();
    return {of_inputs[0], of_inputs[1], Tensor(), gradients.gate_up_EGD.to(type), gradients.down_EDF.to(type)};
  }
};

void check(const Tensor& x_TD, const Tensor& weights_TK, const Tensor& ids_TK, const Tensor& gate_up_EGD,
           const Tensor& down_EDF) {
  const auto type = x_TD.scalar_type();
  ATHANOR_CHECK_AS(Error, type == at::kFloat || type == at::kBFloat16, "sparse layer: x is {}, expected fp32 or bf16",
                   c10::toString(type));
  ATHANOR_CHECK_AS(Error, gate_up_EGD.scalar_type() == type && down_EDF.scalar_type() == type,
                   "sparse layer: the experts are {} and {}, and x is {}", c10::toString(gate_up_EGD.scalar_type()),
                   c10::toString(down_EDF.scalar_type()), c10::toString(type));
  ATHANOR_CHECK_AS(Error, weights_TK.scalar_type() == at::kFloat && ids_TK.scalar_type() == at::kLong,
                   "sparse layer: weights are {}, expected fp32, and ids {}, expected int64",
                   c10::toString(weights_TK.scalar_type()), c10::toString(ids_TK.scalar_type()));
  const bool fits = x_TD.dim() == 2 && down_EDF.dim() == 3 && gate_up_EGD.dim() == 3 && ids_TK.dim() == 2 &&
                    weights_TK.sizes() == ids_TK.sizes() && ids_TK.size(0) == x_TD.size(0) &&
                    down_EDF.size(1) == x_TD.size(1) && gate_up_EGD.size(2) == x_TD.size(1) &&
                    gate_up_EGD.size(0) == down_EDF.size(0) && gate_up_EGD.size(1) == 2 * down_EDF.size(2);
  ATHANOR_CHECK_AS(
      Error, fits, "sparse layer: x {}, weights {}, ids {}, gate and up {} and down {} do not fit together",
      fmt::join(x_TD.sizes(), " × "), fmt::join(weights_TK.sizes(), " × "), fmt::join(ids_TK.sizes(), " × "),
      fmt::join(gate_up_EGD.sizes(), " × "), fmt::join(down_EDF.sizes(), " × "));
}

}  // namespace

Tensor expert_layer(const Tensor& x_TD, const Tensor& weights_TK, const Tensor& ids_TK, const Tensor& gate_up_EGD,
                    const Tensor& down_EDF) {
  check(x_TD, weights_TK, ids_TK, gate_up_EGD, down_EDF);
  const Tensor gate_up = gate_up_EGD.contiguous(), down = down_EDF.contiguous(), ids = ids_TK.contiguous(),
               x = x_TD.contiguous(), weights = weights_TK.contiguous();
  if (at::GradMode::is_enabled()) return ExpertLayer::apply(x, weights, ids, gate_up, down);
  return ops::experts(x, weights, ids, experts_of(gate_up, down), 0, down.size(0));
}

SparseLayerResult sparse_layer(const Tensor& x, const Tensor& router_ED, const Tensor& gate_up_EGD,
                               const Tensor& down_EDF, const SparseLayerOptions& options) {
  const Tensor x_TD = x.reshape({-1, x.size(-1)});
  const Tensor logits_TE = at::linear(x_TD, router_ED);
  auto [weights_TK, ids_TK] = at::topk(at::softmax(logits_TE, -1, at::kFloat), options.choices, -1);
  if (options.norm_topk_prob) weights_TK = weights_TK / weights_TK.sum(-1, /*keepdim=*/true);
  return {expert_layer(x_TD, weights_TK, ids_TK, gate_up_EGD, down_EDF).view(x.sizes()), logits_TE};
}

}  // namespace athanor::inline blocks
