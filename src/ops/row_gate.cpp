#include "ops/row_gate.h"

#include <torch/csrc/autograd/custom_function.h>

#include "kernels/row_gate.h"
#include "ops/device.h"
#include "ops/played.h"

namespace athanor::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

Tensor forward_of(const Tensor& x, const Tensor& gate) {
  if (device::takes(x)) return portable::row_gate(x, gate);
  const Tensor y = at::empty_like(x);
  if (played("row_gate", {x, gate}, {y})) return y;
  const int64_t width = x.size(-1);
  with_element(x, [&](auto* tag) {
    using T = std::decay_t<decltype(*tag)>;
    const T *from = pointer<T>(x), *g = pointer<T>(gate);
    T* to = pointer<T>(y);
    for_rows(num_rows(x), width, [&](int64_t begin, int64_t end) {
      kernels::row_gate_forward(from + begin * width, g + begin, to + begin * width, end - begin, width);
    });
  });
  return y;
}

// The gradients of x and gate.
variable_list gradients_of(const Tensor& dy, const Tensor& x, const Tensor& gate) {
  if (device::takes(x)) {
    const Tensor s = gate.to(at::kFloat).sigmoid(), wide = dy.to(at::kFloat);
    const Tensor dot = (wide * x).sum(-1, /*keepdim=*/true);
    return {(s * wide).to(x.scalar_type()), (s * (1 - s) * dot).to(x.scalar_type())};
  }
  const Tensor dx = at::empty_like(x), dgate = at::empty_like(gate);
  if (played("row_gate_backward", {dy, x, gate}, {dx, dgate})) return {dx, dgate};
  const int64_t width = x.size(-1);
  with_element(x, [&](auto* tag) {
    using T = std::decay_t<decltype(*tag)>;
    const T *d = pointer<T>(dy), *from = pointer<T>(x), *g = pointer<T>(gate);
    T *to = pointer<T>(dx), *dg = pointer<T>(dgate);
    for_rows(num_rows(x), width, [&](int64_t begin, int64_t end) {
      const int64_t at = begin * width;
      kernels::row_gate_backward(d + at, from + at, g + begin, to + at, dg + begin, end - begin, width);
    });
  });
  return {dx, dgate};
}

struct RowGate : torch::autograd::Function<RowGate> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Tensor& gate) {
    ctx->save_for_backward({x, gate});
    return forward_of(x, gate);
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    return gradients_of(grads[0].contiguous(), saved[0], saved[1]);
  }
};

}  // namespace

Tensor row_gate(const Tensor& x, const Tensor& gate) {
  ATHANOR_ASSERT(gate.numel() == num_rows(x) && gate.size(-1) == 1);
  const Tensor rows = x.contiguous(), gates = gate.contiguous();
  return at::GradMode::is_enabled() ? RowGate::apply(rows, gates) : forward_of(rows, gates);
}

namespace portable {
Tensor row_gate(const Tensor& x, const Tensor& gate) {
  return (gate.to(wide_type(x)).sigmoid() * x.to(wide_type(x))).to(x.scalar_type());
}
}  // namespace portable

}  // namespace athanor::ops
