#include "ops/gelu.h"

#include <torch/csrc/autograd/custom_function.h>

#include <cmath>

#include "ops/device.h"
#include "ops/played.h"

namespace athanor::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

Tensor forward_of(const Tensor& x, GeluForm form) {
  const Tensor y = at::empty_like(x);
  if (played("gelu", {x}, {y})) return y;
  with_element(x, [&](auto* tag) {
    using T = std::decay_t<decltype(*tag)>;
    const T* from = pointer<T>(x);
    T* to = pointer<T>(y);
    for_rows(x.numel(), 1,
             [&](int64_t begin, int64_t end) { kernels::gelu_forward(form, from + begin, to + begin, end - begin); });
  });
  return y;
}

struct Gelu : torch::autograd::Function<Gelu> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, GeluForm form) {
    ctx->save_for_backward({x});
    ctx->saved_data["exact"] = form == GeluForm::kExact;
    return forward_of(x, form);
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const Tensor x = ctx->get_saved_variables()[0], dy = grads[0].contiguous(), dx = at::empty_like(x);
    const GeluForm form = ctx->saved_data["exact"].toBool() ? GeluForm::kExact : GeluForm::kTanh;
    if (played("gelu_backward", {x, dy}, {dx})) return {dx, Tensor()};
    with_element(x, [&](auto* tag) {
      using T = std::decay_t<decltype(*tag)>;
      const T *from = pointer<T>(x), *d = pointer<T>(dy);
      T* to = pointer<T>(dx);
      for_rows(x.numel(), 1, [&](int64_t begin, int64_t end) {
        kernels::gelu_backward(form, d + begin, from + begin, to + begin, end - begin);
      });
    });
    return {dx, Tensor()};
  }
};

}  // namespace

// libtorch's own form for CPUs computes the last elements of a tensor by another function than the others, so that the
// bits of a token would depend on its place.
Tensor gelu(const Tensor& x, GeluForm form) {
  if (device::takes(x)) return device::gelu(x, form);
  return at::GradMode::is_enabled() ? Gelu::apply(x.contiguous(), form) : forward_of(x.contiguous(), form);
}

namespace portable {
Tensor gelu(const Tensor& x, GeluForm form) {
  const Tensor wide = x.to(wide_type(x));
  if (form == GeluForm::kExact) return (wide * at::erfc(wide * -std::sqrt(0.5)) / 2).to(x.scalar_type());
  const Tensor near = wide.clamp(-kernels::kGeluFar, kernels::kGeluFar);
  const Tensor inner = 0.7978845608028654 * (near + 0.044715 * near * near * near);
  return (wide * at::sigmoid(2 * inner)).to(x.scalar_type());
}
}  // namespace portable

}  // namespace athanor::ops
