// Rotary positions and activations.

#include <torch/csrc/autograd/custom_function.h>

#include "kernels/cuda/elementwise.h"
#include "ops/device.h"
#include "ops/device/on_stream.h"
#include "ops/gelu.h"
#include "ops/soft_cap.h"
#include "ops/swiglu.h"

namespace athanor::ops::device {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

Tensor turn(const Tensor& x, const Tensor& cos, const Tensor& sin, float direction) {
  const Tensor y = at::empty_like(x);
  const int64_t head_dim = x.size(-1), num_heads = x.size(-2);
  const int64_t tokens = x.numel() / std::max<int64_t>(head_dim * num_heads, 1);
  ATHANOR_ASSERT(head_dim % 2 == 0 && cos.numel() == tokens * head_dim / 2 && sin.numel() == cos.numel());
  const OnStream stream(x);
  with_element(x, [&](auto* tag) {
    using T = std::decay_t<decltype(*tag)>;
    kernels::cuda::rope<T>(stream, data<T>(x), data<T>(y), data<float>(cos), data<float>(sin), tokens, num_heads,
                           head_dim, direction);
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

enum class Gate { kSilu, kGelu };

template <Gate kGate>
Tensor activation(const Tensor& gate, const Tensor& up) {
  const Tensor out = at::empty_like(gate);
  const OnStream stream(gate);
  with_element(gate, [&](auto* tag) {
    using T = std::decay_t<decltype(*tag)>;
    const auto kernel = kGate == Gate::kSilu ? kernels::cuda::swiglu_forward<T> : kernels::cuda::geglu_forward<T>;
    kernel(stream, data<T>(gate), data<T>(up), data<T>(out), gate.numel());
  });
  return out;
}

template <Gate kGate>
struct Gated : torch::autograd::Function<Gated<kGate>> {
  static Tensor forward(AutogradContext* ctx, const Tensor& gate, const Tensor& up) {
    ctx->save_for_backward({gate, up});
    return activation<kGate>(gate, up);
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    const Tensor &gate = saved[0], &up = saved[1], dout = grads[0].contiguous();
    const Tensor dgate = at::empty_like(gate), dup = at::empty_like(up);
    const OnStream stream(gate);
    with_element(gate, [&](auto* tag) {
      using T = std::decay_t<decltype(*tag)>;
      const auto kernel = kGate == Gate::kSilu ? kernels::cuda::swiglu_backward<T> : kernels::cuda::geglu_backward<T>;
      kernel(stream, data<T>(dout), data<T>(gate), data<T>(up), data<T>(dgate), data<T>(dup), gate.numel());
    });
    return {dgate, dup};
  }
};

template <Gate kGate>
Tensor gated(const Tensor& gate, const Tensor& up) {
  ATHANOR_ASSERT(gate.sizes() == up.sizes());
  const Tensor g = gate.contiguous(), u = up.contiguous();
  return at::GradMode::is_enabled() ? Gated<kGate>::apply(g, u) : activation<kGate>(g, u);
}

}  // namespace

Tensor rope(const Tensor& x, const Rotation& rotation) {
  if (!has_kernels(x)) return portable::rope(x, rotation);
  const Tensor heads = x.contiguous(), cos = rotation.cos.contiguous(), sin = rotation.sin.contiguous();
  if (!at::GradMode::is_enabled() || !heads.requires_grad()) return turn(heads, cos, sin, 1);
  return Rope::apply(heads, cos, sin);
}

Tensor swiglu(const Tensor& gate, const Tensor& up) {
  return has_kernels(gate) ? gated<Gate::kSilu>(gate, up) : portable::swiglu(gate, up);
}

Tensor geglu(const Tensor& gate, const Tensor& up) {
  return has_kernels(gate) ? gated<Gate::kGelu>(gate, up) : portable::geglu(gate, up);
}

namespace {

struct Gelu : torch::autograd::Function<Gelu> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, GeluForm form) {
    ctx->save_for_backward({x});
    ctx->saved_data["exact"] = form == GeluForm::kExact;
    const Tensor y = at::empty_like(x);
    const OnStream stream(x);
    with_element(x, [&](auto* tag) {
      using T = std::decay_t<decltype(*tag)>;
      kernels::cuda::gelu_forward<T>(stream, form, data<T>(x), data<T>(y), x.numel());
    });
    return y;
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const Tensor x = ctx->get_saved_variables()[0], dy = grads[0].contiguous(), dx = at::empty_like(x);
    const GeluForm form = ctx->saved_data["exact"].toBool() ? GeluForm::kExact : GeluForm::kTanh;
    const OnStream stream(x);
    with_element(x, [&](auto* tag) {
      using T = std::decay_t<decltype(*tag)>;
      kernels::cuda::gelu_backward<T>(stream, form, data<T>(dy), data<T>(x), data<T>(dx), x.numel());
    });
    return {dx, Tensor()};
  }
};

}  // namespace

Tensor gelu(const Tensor& x, GeluForm form) {
  if (!has_kernels(x)) return portable::gelu(x, form);
  return Gelu::apply(x.contiguous(), form);
}

Tensor soft_cap(const Tensor& x, double cap) {
  if (!has_kernels(x)) return portable::soft_cap(x, cap);
  const Tensor from = x.contiguous(), y = at::empty_like(from);
  const OnStream stream(x);
  with_element(x, [&](auto* tag) {
    using T = std::decay_t<decltype(*tag)>;
    kernels::cuda::soft_cap_forward<T>(stream, data<T>(from), data<T>(y), x.numel(), static_cast<float>(cap));
  });
  return y;
}

void soft_cap_gradient_(const Tensor& dy, const Tensor& x, double cap) {
  if (!has_kernels(x)) return portable::soft_cap_gradient_(dy, x, cap);
  const OnStream stream(x);
  with_element(x, [&](auto* tag) {
    using T = std::decay_t<decltype(*tag)>;
    kernels::cuda::soft_cap_backward<T>(stream, data<T>(dy), data<T>(x), data<T>(dy), x.numel(),
                                        static_cast<float>(cap));
  });
}

}  // namespace athanor::ops::device
