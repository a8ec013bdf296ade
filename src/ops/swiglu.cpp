#include "ops/swiglu.h"

#include <torch/csrc/autograd/custom_function.h>

#include "kernels/swiglu.h"
#include "ops/device.h"

namespace athanor::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Swiglu : torch::autograd::Function<Swiglu> {
  static Tensor forward(AutogradContext* ctx, const Tensor& gate, const Tensor& up) {
    ctx->save_for_backward({gate, up});
    Tensor out = at::empty_like(gate);
    swiglu_into(gate, up, out);
    return out;
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    Tensor dgate = at::empty_like(saved[0]), dup = at::empty_like(saved[1]);
    swiglu_backward_into(grads[0].contiguous(), saved[0], saved[1], dgate, dup);
    return {dgate, dup};
  }
};

}  // namespace

void swiglu_into(const Tensor& gate, const Tensor& up, const Tensor& out) {
  with_element(gate, [&](auto* tag) {
    using T = std::decay_t<decltype(*tag)>;
    const T *g = pointer<T>(gate), *u = pointer<T>(up);
    T* o = pointer<T>(out);
    for_rows(gate.numel(), 1, [&](int64_t begin, int64_t end) {
      kernels::swiglu_forward(g + begin, u + begin, o + begin, end - begin);
    });
  });
}

void swiglu_backward_into(const Tensor& dout, const Tensor& gate, const Tensor& up, const Tensor& dgate,
                          const Tensor& dup) {
  with_element(gate, [&](auto* tag) {
    using T = std::decay_t<decltype(*tag)>;
    const T *d = pointer<T>(dout), *g = pointer<T>(gate), *u = pointer<T>(up);
    T *dg = pointer<T>(dgate), *du = pointer<T>(dup);
    for_rows(gate.numel(), 1, [&](int64_t begin, int64_t end) {
      kernels::swiglu_backward(d + begin, g + begin, u + begin, dg + begin, du + begin, end - begin);
    });
  });
}

Tensor swiglu(const Tensor& gate, const Tensor& up) {
  if (device::takes(gate)) return device::swiglu(gate, up);
  ATHANOR_ASSERT(gate.sizes() == up.sizes());
  const Tensor g = gate.contiguous(), u = up.contiguous();
  if (!at::GradMode::is_enabled()) {
    Tensor out = at::empty_like(g);
    swiglu_into(g, u, out);
    return out;
  }
  return Swiglu::apply(g, u);
}

namespace portable {
Tensor swiglu(const Tensor& gate, const Tensor& up) {
  return (at::silu(gate.to(wide_type(gate))) * up.to(wide_type(up))).to(gate.scalar_type());
}
}  // namespace portable

}  // namespace athanor::ops
