#include "ops/norm.h"

#include "kernels/cuda/norm.h"
#include "ops/device.h"
#include "ops/device/on_stream.h"
#include "ops/device/portable_op.h"

namespace athanor::ops::device {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

Tensor forward(const Tensor& x, const Tensor& branch, const Tensor& sum, const Tensor& weight, const Tensor& rstd,
               const RmsForm& form) {
  const Tensor y = at::empty_like(x);
  const OnStream stream(x);
  with_element(x, [&](auto* tag) {
    using T = std::decay_t<decltype(*tag)>;
    kernels::cuda::rms_norm_forward<T>(stream, data<T>(x), data<T>(branch), data<T>(weight), data<T>(sum), data<T>(y),
                                       data<float>(rstd), num_rows(x), x.size(-1), static_cast<float>(form.eps),
                                       static_cast<float>(form.offset));
  });
  return y;
}

Tensor backward_of(const Tensor& dsum, const Tensor& dy, const Tensor& x, const Tensor& rstd, const Weight& weight,
                   double offset) {
  const Tensor dx = at::empty_like(x);
  const int64_t rows = num_rows(x), width = x.size(-1);
  const Tensor partials = at::empty({kernels::cuda::norm_partials(rows, width)}, weight.grad.options());
  const OnStream stream(x);
  with_element(x, [&](auto* tag) {
    using T = std::decay_t<decltype(*tag)>;
    kernels::cuda::rms_norm_backward<T>(stream, data<T>(dsum), data<T>(dy), data<T>(x), data<T>(weight.value),
                                        data<float>(rstd), data<T>(dx), data<float>(weight.grad), data<float>(partials),
                                        rows, width, static_cast<float>(offset));
  });
  return dx;
}

Tensor per_row(const Tensor& x) { return at::empty({num_rows(x)}, x.options().dtype(at::kFloat)); }

void keep(AutogradContext* ctx, const Tensor& x, const Tensor& rstd, const Weight& weight, const RmsForm& form) {
  ctx->save_for_backward({x});
  ctx->saved_data["rstd"] = rstd;
  ctx->saved_data["weight"] = weight.value;
  ctx->saved_data["grad"] = weight.grad;
  ctx->saved_data["offset"] = form.offset;
}

Tensor backward_of(AutogradContext* ctx, const Tensor& dsum, const Tensor& dy) {
  return backward_of(
      contiguous_or_none(dsum), dy.contiguous(), ctx->get_saved_variables()[0], ctx->saved_data["rstd"].toTensor(),
      {ctx->saved_data["weight"].toTensor(), ctx->saved_data["grad"].toTensor()}, ctx->saved_data["offset"].toDouble());
}

struct RmsNorm : torch::autograd::Function<RmsNorm> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Weight& weight, const RmsForm& form) {
    const Tensor rstd = per_row(x);
    keep(ctx, x, rstd, weight, form);
    return device::forward(x, {}, {}, weight.value, rstd, form);
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    return {backward_of(ctx, {}, grads[0]), Tensor(), Tensor()};
  }
};

// Either result may be used alone, so a gradient that is absent is undefined, not a tensor of zeros.
struct AddRmsNorm : torch::autograd::Function<AddRmsNorm> {
  static variable_list forward(AutogradContext* ctx, const Tensor& x, const Tensor& branch, const Weight& weight,
                               const RmsForm& form) {
    const Tensor rstd = per_row(x), sum = at::empty_like(x);
    const Tensor normed = device::forward(x, branch, sum, weight.value, rstd, form);
    keep(ctx, sum, rstd, weight, form);
    ctx->set_materialize_grads(false);
    return {sum, normed};
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    if (!grads[1].defined()) return {grads[0], grads[0], Tensor(), Tensor()};
    const Tensor dx = backward_of(ctx, grads[0], grads[1]);
    return {dx, dx, Tensor(), Tensor()};
  }
};

bool needs_grad(const Weight& weight) { return at::GradMode::is_enabled() && weight.grad.defined(); }

}  // namespace

Tensor rms_norm(const Tensor& x, const Weight& weight, const RmsForm& form) {
  const Tensor rows = x.contiguous();
  if (!has_kernels(x)) return without_kernels::rms_norm(rows, weight, form);
  if (needs_grad(weight)) return RmsNorm::apply(rows, weight, form);
  return forward(rows, {}, {}, weight.value, per_row(rows), form);
}

NormedSum add_rms_norm(const Tensor& x, const Tensor& branch, const Weight& weight, const RmsForm& form) {
  ATHANOR_ASSERT(x.sizes() == branch.sizes());
  const Tensor rows = x.contiguous(), added = branch.contiguous();
  if (!has_kernels(x)) {
    const Tensor sum = rows + added;
    return {sum, without_kernels::rms_norm(sum, weight, form)};
  }
  if (needs_grad(weight)) {
    const auto results = AddRmsNorm::apply(rows, added, weight, form);
    return {results[0], results[1]};
  }
  const Tensor sum = at::empty_like(rows);
  return {sum, forward(rows, added, sum, weight.value, per_row(rows), form)};
}

namespace without_kernels {
Tensor rms_norm(const Tensor& x, const Weight& weight, const RmsForm& form) {
  if (!needs_grad(weight)) return portable::rms_norm(x, weight.value, form);
  return PortableOp::apply(at::TensorList(x), std::vector<Weight>{weight},
                           PortableForm([form](const auto& in) { return portable::rms_norm(in[0], in[1], form); }));
}
}  // namespace without_kernels

}  // namespace athanor::ops::device
