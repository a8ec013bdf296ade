#include "ops/rope.h"

#include <torch/csrc/autograd/custom_function.h>

#include "kernels/rope.h"
#include "ops/device.h"
#include "ops/library_functions.h"
#include "ops/played.h"

namespace athanor::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

Tensor turn(const Tensor& x, const Tensor& cos, const Tensor& sin, float direction) {
  const Tensor y = at::empty_like(x);
  if (played("rope", {x, cos, sin}, {y})) return y;
  const int64_t head_dim = x.size(-1), num_heads = x.size(-2), tokens = x.numel() / (head_dim * num_heads);
  const int64_t half = head_dim / 2;
  ATHANOR_ASSERT(head_dim % 2 == 0 && cos.numel() == tokens * half && sin.numel() == tokens * half);
  const float *c = pointer<float>(cos), *s = pointer<float>(sin);
  with_element(x, [&](auto* tag) {
    using T = std::decay_t<decltype(*tag)>;
    const T* from = pointer<T>(x);
    T* to = pointer<T>(y);
    const int64_t width = num_heads * head_dim;
    for_rows(tokens, width, [&](int64_t begin, int64_t end) {
      kernels::rope(from + begin * width, to + begin * width, c + begin * half, s + begin * half, end - begin,
                    num_heads, head_dim, direction);
    });
  });
  return y;
}

struct Rope : torch::autograd::Function<Rope> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Tensor& cos, const Tensor& sin) {
    ctx->saved_data["cos"] = cos;
    ctx->saved_data["sin"] = sin;
    return turn(x, cos, sin, 1);
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const Tensor cos = ctx->saved_data["cos"].toTensor(), sin = ctx->saved_data["sin"].toTensor();
    return {turn(grads[0].contiguous(), cos, sin, -1), Tensor(), Tensor()};
  }
};

}  // namespace

Tensor inverse_frequency(int64_t head_dim, double theta) {
  const at::NoGradGuard no_grad;
  const Tensor exponent = at::arange(0, head_dim, 2, at::kLong).to(at::kFloat) / static_cast<double>(head_dim);
  return 1.0 / at::pow(theta, exponent);
}

Rotation make_rotation(const Tensor& positions, const Tensor& frequency, const Tensor& scale) {
  const at::NoGradGuard no_grad;
  start_library_functions();
  const Tensor angle = positions.to(at::kFloat).unsqueeze(-1) * frequency;
  Tensor cos = angle.cos(), sin = angle.sin();
  if (scale.defined()) {
    cos = cos * scale;
    sin = sin * scale;
  }
  return {cos.contiguous(), sin.contiguous()};
}

Tensor rope(const Tensor& x, const Rotation& rotation) {
  if (device::takes(x)) return device::rope(x, rotation);
  const Tensor heads = x.contiguous();
  if (!at::GradMode::is_enabled() || !heads.requires_grad()) return turn(heads, rotation.cos, rotation.sin, 1);
  return Rope::apply(heads, rotation.cos, rotation.sin);
}

namespace portable {

Tensor rope(const Tensor& x, const Rotation& rotation) {
  const auto halves = x.to(wide_type(x)).chunk(2, -1);
  const auto row = [&](const Tensor& t) {
    auto shape = x.sizes().vec();
    shape[shape.size() - 2] = 1;
    shape.back() /= 2;
    return t.view(shape);
  };
  const Tensor cos = row(rotation.cos), sin = row(rotation.sin);
  return at::cat({halves[0] * cos - halves[1] * sin, halves[1] * cos + halves[0] * sin}, -1).to(x.scalar_type());
}

}  // namespace portable
}  // namespace athanor::ops
