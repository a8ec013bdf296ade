#pragma once
// An autograd function made from a portable form: a function of tensors and weights in torch ops, differentiated by
// autograd, whose weights' gradients go into buckets. It is the op on a device that has no kernels.

#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <functional>
#include <vector>

#include "ops/tensor.h"

namespace athanor::ops::device {

/// A function of the inputs followed by the weights' values.
using PortableForm = std::function<Tensor(const std::vector<Tensor>&)>;

/// Forward runs `form` without keeping what it computes; backward runs it again, with autograd, and adds the weights'
/// gradients into Weight::grad.
struct PortableOp : torch::autograd::Function<PortableOp> {
  using Context = torch::autograd::AutogradContext;
  using Variables = torch::autograd::variable_list;

  static Tensor forward(Context* ctx, at::TensorList inputs, const std::vector<Weight>& weights,
                        const PortableForm& form) {
    std::vector<Tensor> all(inputs.begin(), inputs.end());
    ctx->save_for_backward(all);
    for (const Weight& weight : weights) all.push_back(weight.value);
    ctx->saved_data["kept"] = c10::IValue::make_capsule(c10::make_intrusive<Kept>(weights, form));
    return form(all);
  }

  static Variables backward(Context* ctx, Variables grads) {
    Variables leaves;
    const auto kept = ctx->saved_data["kept"].toCapsule();
    const auto& weights = static_cast<const Kept&>(*kept).weights;
    const auto& form = static_cast<const Kept&>(*kept).form;
    for (const Tensor& input : ctx->get_saved_variables()) leaves.push_back(input.detach().requires_grad_());
    const size_t num_inputs = leaves.size();
    // As fp32, so that their gradients are not rounded to the weights' type before they are added.
    for (const Weight& weight : weights) leaves.push_back(weight.value.detach().to(at::kFloat).requires_grad_());
    Variables result;
    {
      const at::AutoGradMode with_grad(true);
      const Tensor out = form(leaves);
      result = torch::autograd::grad({out}, leaves, {grads[0].to(out.scalar_type())}, /*retain_graph=*/false,
                                     /*create_graph=*/false, /*allow_unused=*/true);
    }
    for (size_t w = 0; w < weights.size(); ++w) {
      const Tensor& grad = result[num_inputs + w];
      if (grad.defined()) weights[w].grad.add_(grad);
    }
    result.resize(num_inputs);
    result.resize(num_inputs + 2);  // weights and form have none
    return result;
  }

 private:
  struct Kept : torch::CustomClassHolder {
    Kept(std::vector<Weight> w, PortableForm f) : weights(std::move(w)), form(std::move(f)) {}
    std::vector<Weight> weights;
    PortableForm form;
  };
};

}  // namespace athanor::ops::device
