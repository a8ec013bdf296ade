#include "ops/affine.h"

#include <torch/csrc/autograd/custom_function.h>

#include "kernels/accumulate.h"
#include "kernels/affine.h"
#include "ops/device.h"
#include "ops/norm.h"
#include "ops/played.h"

namespace athanor::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

Tensor forward_of(const Tensor& x, const Tensor& scale, const Tensor& bias) {
  if (device::takes(x)) return portable::affine(x, scale, bias);
  const Tensor from = x.contiguous(), y = at::empty_like(from);
  if (played("affine", {from, scale, bias}, {y})) return y;
  const int64_t width = x.size(-1);
  with_element(x, [&](auto* tag) {
    using T = std::decay_t<decltype(*tag)>;
    const T *xp = pointer<T>(from), *sp = pointer_or_null<T>(scale), *bp = pointer<T>(bias);
    T* yp = pointer<T>(y);
    for_rows(num_rows(x), width, [&](int64_t begin, int64_t end) {
      kernels::affine_forward(xp + begin * width, sp, bp, yp + begin * width, end - begin, width);
    });
  });
  return y;
}

// Adds the rows of `partials` to `grad` [width], in their order.
void add_rows(const Tensor& grad, const Tensor& partials) {
  float* sum = pointer<float>(grad);
  const float* from = pointer<float>(partials);
  const int64_t rows = partials.size(0), width = partials.size(1);
  at::parallel_for(0, width, 1024, [&](int64_t begin, int64_t end) {
    for (int64_t r = 0; r < rows; ++r) kernels::accumulate(sum + begin, from + r * width + begin, end - begin);
  });
}

// Returns the gradient of x. x and scale are undefined if there is no scale.
Tensor backward_here(const Tensor& dy, const Tensor& x, const Weight& scale, const Tensor& bias_grad) {
  const int64_t width = dy.size(-1), rows = num_rows(dy), blocks = (rows + kRowsPerPartial - 1) / kRowsPerPartial;
  const Tensor dx = scale.defined() ? at::empty_like(dy) : dy;
  const Tensor of_bias = at::zeros({blocks, width}, bias_grad.options()),
               of_scale = scale.defined() ? at::zeros_like(of_bias) : Tensor();
  if (played("affine_backward", {dy, x, scale.value}, {dx, of_bias, of_scale, bias_grad, scale.grad})) return dx;
  with_element(dy, [&](auto* tag) {
    using T = std::decay_t<decltype(*tag)>;
    const T *dyp = pointer<T>(dy), *xp = pointer_or_null<T>(x), *sp = pointer_or_null<T>(scale.value);
    T* dxp = pointer<T>(dx);
    float *bias = pointer<float>(of_bias), *scales = pointer_or_null<float>(of_scale);
    at::parallel_for(0, blocks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end; ++b) {
        const int64_t row = b * kRowsPerPartial, at = row * width;
        kernels::affine_backward(dyp + at, xp ? xp + at : nullptr, sp, dxp + at, scales ? scales + b * width : nullptr,
                                 bias + b * width, std::min(kRowsPerPartial, rows - row), width);
      }
    });
  });
  add_rows(bias_grad, of_bias);
  if (scale.defined()) add_rows(scale.grad, of_scale);
  return dx;
}

// The same on a device, whose library adds up in an order of its own that no step changes.
Tensor backward_there(const Tensor& dy, const Tensor& x, const Weight& scale, const Tensor& bias_grad) {
  const Tensor rows = dy.view({-1, dy.size(-1)});
  bias_grad.add_(rows.sum(0, false, at::kFloat));
  if (!scale.defined()) return dy;
  const Tensor wide = rows.to(at::kFloat);
  scale.grad.add_((wide * x.reshape(rows.sizes())).sum(0));
  return (wide * scale.value).to(dy.scalar_type()).view(dy.sizes());
}

struct Affine : torch::autograd::Function<Affine> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Weight& scale, const Weight& bias) {
    const Tensor from = x.contiguous();
    if (scale.defined()) ctx->save_for_backward({from});
    ctx->saved_data["scale"] = scale.value;
    ctx->saved_data["scale_grad"] = scale.grad;
    ctx->saved_data["bias_grad"] = bias.grad;
    return forward_of(from, scale.value, bias.value);
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    const auto tensor = [&](const char* name) { return ctx->saved_data[name].toTensor(); };
    const Tensor dy = grads[0].contiguous();
    const auto run = device::takes(dy) ? backward_there : backward_here;
    const Tensor dx =
        run(dy, saved.empty() ? Tensor() : saved[0], {tensor("scale"), tensor("scale_grad")}, tensor("bias_grad"));
    return {dx, Tensor(), Tensor()};
  }
};

}  // namespace

Tensor affine(const Tensor& x, const Weight& scale, const Weight& bias) {
  if (at::GradMode::is_enabled() && bias.grad.defined()) return Affine::apply(x, scale, bias);
  return forward_of(x, scale.value, bias.value);
}

namespace portable {
Tensor affine(const Tensor& x, const Tensor& scale, const Tensor& bias) {
  const auto wide = wide_type(x);
  const Tensor scaled = scale.defined() ? x.to(wide) * scale.to(wide) : x.to(wide);
  return (scaled + bias.to(wide)).to(x.scalar_type());
}
}  // namespace portable

}  // namespace athanor::ops
