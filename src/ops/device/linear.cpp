// Ops other than norms that add into the buckets of weights: a linear's outer product, and embedding rows.

#include "ops/linear.h"

#include <torch/csrc/autograd/custom_function.h>

#include "kernels/cuda/accumulate.h"
#include "ops/device.h"
#include "ops/device/on_stream.h"

namespace athanor::ops::device {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

Tensor look_up(const Tensor& tokens, const Tensor& weight) {
  auto shape = tokens.sizes().vec();
  shape.push_back(weight.size(1));
  return at::index_select(weight, 0, tokens.reshape({-1})).view(shape);
}

// Adds Σ rows into `grad`, in the order of the tokens.
void add_rows(const Tensor& grad, const Tensor& tokens, const Tensor& dy) {
  const int64_t rows = tokens.numel(), width = grad.size(1);
  const Tensor workspace = at::empty({2 * rows}, tokens.options());
  const OnStream stream(grad);
  with_element(dy, [&](auto* tag) {
    using T = std::decay_t<decltype(*tag)>;
    kernels::cuda::accumulate_rows<T>(stream, data<float>(grad), data<T>(dy), data<int64_t>(tokens),
                                      data<int64_t>(workspace), rows, width);
  });
}

template <bool kWithKernels>
struct Embedding : torch::autograd::Function<Embedding<kWithKernels>> {
  static Tensor forward(AutogradContext* ctx, const Tensor& /*anchor*/, const Tensor& tokens, const Weight& weight) {
    ctx->saved_data["tokens"] = tokens;
    ctx->saved_data["grad"] = weight.grad;
    return look_up(tokens, weight.value);
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const Tensor tokens = ctx->saved_data["tokens"].toTensor().reshape({-1}).contiguous();
    const Tensor grad = ctx->saved_data["grad"].toTensor();
    const Tensor dy = grads[0].contiguous().view({-1, grad.size(1)});
    if constexpr (kWithKernels) {
      add_rows(grad, tokens, dy);
    } else {
      // Sorts the tokens, so that the order of additions is also fixed on a GPU.
      Tensor sum = grad;
      sum.index_put_({tokens}, dy.to(at::kFloat), /*accumulate=*/true);
    }
    return {Tensor(), Tensor(), Tensor()};
  }
};

template <bool kWithKernels>
Tensor embedding_of(const Tensor& tokens, const Weight& weight) {
  if (!at::GradMode::is_enabled() || !weight.grad.defined()) return look_up(tokens, weight.value);
  const Tensor anchor = at::empty({0}, weight.value.options()).requires_grad_();
  return Embedding<kWithKernels>::apply(anchor, tokens, weight);
}

}  // namespace

Tensor embedding(const Tensor& tokens, const Weight& weight) {
  return has_kernels(weight.value) ? embedding_of<true>(tokens, weight) : embedding_of<false>(tokens, weight);
}

void add_outer_product(const Tensor& grad, const Tensor& a, const Tensor& b) {
  const at::NoGradGuard no_grad;
  if (a.size(0) == 0) return;
  Tensor sum = grad;
  if (a.scalar_type() == at::kFloat) {
    sum.addmm_(a.t(), b);
  } else if (a.is_cuda() || (has_kernels(a) && !a.is_cpu())) {
    sum.add_(at::mm(a.t(), b, at::kFloat));  // fp32 from bf16 operands without a rounding: only with CUDA
  } else {
    sum.add_(at::mm(a.t(), b));
  }
}

namespace without_kernels {
Tensor embedding(const Tensor& tokens, const Weight& weight) { return embedding_of<false>(tokens, weight); }
}  // namespace without_kernels

}  // namespace athanor::ops::device
