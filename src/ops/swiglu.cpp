#include "ops/swiglu.h"

#include <torch/csrc/autograd/custom_function.h>

#include "kernels/gelu.h"
#include "kernels/swiglu.h"
#include "ops/device.h"
#include "ops/gelu.h"
#include "ops/played.h"

namespace athanor::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

enum class Gate { kSilu, kGelu };

template <Gate kGate>
void forward_into(const Tensor& gate, const Tensor& up, const Tensor& out) {
  if (played("gated_unit", {gate, up}, {out})) return;
  with_element(gate, [&](auto* tag) {
    using T = std::decay_t<decltype(*tag)>;
    const auto kernel = kGate == Gate::kSilu ? kernels::swiglu_forward<T> : kernels::geglu_forward<T>;
    const T *g = pointer<T>(gate), *u = pointer<T>(up);
    T* o = pointer<T>(out);
    for_rows(gate.numel(), 1,
             [&](int64_t begin, int64_t end) { kernel(g + begin, u + begin, o + begin, end - begin); });
  });
}

template <Gate kGate>
void backward_into(const Tensor& dout, const Tensor& gate, const Tensor& up, const Tensor& dgate, const Tensor& dup) {
  if (played("gated_unit_backward", {dout, gate, up}, {dgate, dup})) return;
  with_element(gate, [&](auto* tag) {
    using T = std::decay_t<decltype(*tag)>;
    const auto kernel = kGate == Gate::kSilu ? kernels::swiglu_backward<T> : kernels::geglu_backward<T>;
    const T *d = pointer<T>(dout), *g = pointer<T>(gate), *u = pointer<T>(up);
    T *dg = pointer<T>(dgate), *du = pointer<T>(dup);
    for_rows(gate.numel(), 1, [&](int64_t begin, int64_t end) {
      kernel(d + begin, g + begin, u + begin, dg + begin, du + begin, end - begin);
    });
  });
}

template <Gate kGate>
Tensor forward_of(const Tensor& gate, const Tensor& up) {
  Tensor out = at::empty_like(gate);
  forward_into<kGate>(gate, up, out);
  return out;
}

template <Gate kGate>
struct Gated : torch::autograd::Function<Gated<kGate>> {
  static Tensor forward(AutogradContext* ctx, const Tensor& gate, const Tensor& up) {
    ctx->save_for_backward({gate, up});
    return forward_of<kGate>(gate, up);
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    Tensor dgate = at::empty_like(saved[0]), dup = at::empty_like(saved[1]);
    backward_into<kGate>(grads[0].contiguous(), saved[0], saved[1], dgate, dup);
    return {dgate, dup};
  }
};

template <Gate kGate>
Tensor gated(const Tensor& gate, const Tensor& up) {
  ATHANOR_ASSERT(gate.sizes() == up.sizes());
  const Tensor g = gate.contiguous(), u = up.contiguous();
  return at::GradMode::is_enabled() ? Gated<kGate>::apply(g, u) : forward_of<kGate>(g, u);
}

}  // namespace

void swiglu_into(const Tensor& gate, const Tensor& up, const Tensor& out) { forward_into<Gate::kSilu>(gate, up, out); }

void swiglu_backward_into(const Tensor& dout, const Tensor& gate, const Tensor& up, const Tensor& dgate,
                          const Tensor& dup) {
  backward_into<Gate::kSilu>(dout, gate, up, dgate, dup);
}

Tensor swiglu(const Tensor& gate, const Tensor& up) {
  return device::takes(gate) ? device::swiglu(gate, up) : gated<Gate::kSilu>(gate, up);
}

Tensor geglu(const Tensor& gate, const Tensor& up) {
  return device::takes(gate) ? device::geglu(gate, up) : gated<Gate::kGelu>(gate, up);
}

namespace portable {

Tensor swiglu(const Tensor& gate, const Tensor& up) {
  return (at::silu(gate.to(wide_type(gate))) * up.to(wide_type(up))).to(gate.scalar_type());
}

Tensor geglu(const Tensor& gate, const Tensor& up) {
  const Tensor active = portable::gelu(gate.to(wide_type(gate)), GeluForm::kTanh);
  return (active * up.to(wide_type(up))).to(gate.scalar_type());
}

}  // namespace portable

}  // namespace athanor::ops
