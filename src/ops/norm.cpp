#include "ops/norm.h"

#include <torch/csrc/autograd/custom_function.h>

#include "kernels/accumulate.h"
#include "kernels/norm.h"
#include "ops/device.h"
#include "ops/played.h"

namespace athanor::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

Tensor per_row(const Tensor& x) { return at::empty({num_rows(x)}, x.options().dtype(at::kFloat)); }

// With a branch, this is the norm of x + branch; that sum is written into `sum`.
Tensor rms_forward(const Tensor& x, const Tensor& branch, const Tensor& sum, const Tensor& weight, const Tensor& rstd,
                   const RmsForm& form) {
  Tensor y = at::empty_like(x);
  if (played("rms_norm", {x, branch, weight}, {y, sum, rstd})) return y;
  const int64_t width = x.size(-1);
  with_element(x, [&](auto* tag) {
    using T = std::decay_t<decltype(*tag)>;
    const T *from = pointer<T>(x), *added = pointer_or_null<T>(branch), *scale = pointer<T>(weight);
    T *to = pointer<T>(y), *total = pointer_or_null<T>(sum);
    float* r = pointer<float>(rstd);
    for_rows(num_rows(x), width, [&](int64_t begin, int64_t end) {
      const int64_t at = begin * width, count = end - begin;
      const auto eps = static_cast<float>(form.eps), offset = static_cast<float>(form.offset);
      if (added) {
        kernels::add_rms_norm_forward(from + at, added + at, scale, total + at, to + at, r + begin, count, width, eps,
                                      offset);
      } else {
        kernels::rms_norm_forward(from + at, scale, to + at, r + begin, count, width, eps, offset);
      }
    });
  });
  return y;
}

// Adds the weight's gradient into its bucket. `dsum`, if there is one, is added to the gradient of x.
Tensor rms_backward(const Tensor& dsum, const Tensor& dy, const Tensor& x, const Tensor& rstd, const Weight& weight,
                    double weight_offset) {
  Tensor dx = at::empty_like(x);
  const int64_t rows = num_rows(x), width = x.size(-1), blocks = (rows + kRowsPerPartial - 1) / kRowsPerPartial;
  const Tensor partials = at::zeros({blocks, width}, weight.grad.options());
  if (played("rms_norm_backward", {dsum, dy, x, rstd, weight.value}, {dx, partials, weight.grad})) return dx;
  float* partial = pointer<float>(partials);
  const auto offset = static_cast<float>(weight_offset);
  with_element(x, [&](auto* tag) {
    using T = std::decay_t<decltype(*tag)>;
    const T *dsp = pointer_or_null<T>(dsum), *dyp = pointer<T>(dy), *xp = pointer<T>(x);
    const T* wp = pointer<T>(weight.value);
    T* dxp = pointer<T>(dx);
    const float* rp = pointer<float>(rstd);
    at::parallel_for(0, blocks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end; ++b) {
        const int64_t row = b * kRowsPerPartial, at = row * width, count = std::min(kRowsPerPartial, rows - row);
        float* dw = partial + b * width;
        if (dsp) {
          kernels::add_rms_norm_backward(dsp + at, dyp + at, xp + at, wp, rp + row, dxp + at, dw, count, width, offset);
        } else {
          kernels::rms_norm_backward(dyp + at, xp + at, wp, rp + row, dxp + at, dw, count, width, offset);
        }
      }
    });
  });
  for (int64_t b = 0; b < blocks; ++b) kernels::accumulate(pointer<float>(weight.grad), partial + b * width, width);
  return dx;
}

Tensor layer_forward(const Tensor& x, const Tensor& branch, const Tensor& sum, const Tensor& mean, const Tensor& rstd,
                     double eps) {
  Tensor y = at::empty_like(x);
  if (played("layer_norm", {x, branch}, {y, sum, mean, rstd})) return y;
  const int64_t width = x.size(-1);
  with_element(x, [&](auto* tag) {
    using T = std::decay_t<decltype(*tag)>;
    const T *from = pointer<T>(x), *added = pointer_or_null<T>(branch);
    T *to = pointer<T>(y), *total = pointer_or_null<T>(sum);
    float *m = pointer<float>(mean), *r = pointer<float>(rstd);
    for_rows(num_rows(x), width, [&](int64_t begin, int64_t end) {
      const int64_t at = begin * width, count = end - begin;
      const auto epsilon = static_cast<float>(eps);
      if (added) {
        kernels::add_layer_norm_forward(from + at, added + at, total + at, to + at, m + begin, r + begin, count, width,
                                        epsilon);
      } else {
        kernels::layer_norm_forward(from + at, to + at, m + begin, r + begin, count, width, epsilon);
      }
    });
  });
  return y;
}

Tensor layer_backward(const Tensor& dsum, const Tensor& dy, const Tensor& x, const Tensor& mean, const Tensor& rstd) {
  Tensor dx = at::empty_like(x);
  if (played("layer_norm_backward", {dsum, dy, x, mean, rstd}, {dx})) return dx;
  const int64_t width = x.size(-1);
  with_element(x, [&](auto* tag) {
    using T = std::decay_t<decltype(*tag)>;
    const T *dsp = pointer_or_null<T>(dsum), *dyp = pointer<T>(dy), *xp = pointer<T>(x);
    T* dxp = pointer<T>(dx);
    const float *m = pointer<float>(mean), *r = pointer<float>(rstd);
    for_rows(num_rows(x), width, [&](int64_t begin, int64_t end) {
      const int64_t at = begin * width, count = end - begin;
      if (dsp) {
        kernels::add_layer_norm_backward(dsp + at, dyp + at, xp + at, m + begin, r + begin, dxp + at, count, width);
      } else {
        kernels::layer_norm_backward(dyp + at, xp + at, m + begin, r + begin, dxp + at, count, width);
      }
    });
  });
  return dx;
}

void keep(AutogradContext* ctx, const Tensor& x, const Tensor& rstd, const Weight& weight, const RmsForm& form) {
  ctx->save_for_backward({x});
  ctx->saved_data["rstd"] = rstd;
  ctx->saved_data["weight"] = weight.value;
  ctx->saved_data["grad"] = weight.grad;
  ctx->saved_data["offset"] = form.offset;
}
Weight kept_weight(AutogradContext* ctx) {
  return {ctx->saved_data["weight"].toTensor(), ctx->saved_data["grad"].toTensor()};
}
Tensor contiguous_or_none(const Tensor& x) { return x.defined() ? x.contiguous() : x; }

struct RmsNorm : torch::autograd::Function<RmsNorm> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Weight& weight, const RmsForm& form) {
    const Tensor rstd = per_row(x);
    Tensor y = rms_forward(x, {}, {}, weight.value, rstd, form);
    keep(ctx, x, rstd, weight, form);
    return y;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const Tensor dx =
        rms_backward({}, grads[0].contiguous(), ctx->get_saved_variables()[0], ctx->saved_data["rstd"].toTensor(),
                     kept_weight(ctx), ctx->saved_data["offset"].toDouble());
    return {dx, Tensor(), Tensor()};
  }
};

struct LayerNorm : torch::autograd::Function<LayerNorm> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, double eps) {
    const Tensor mean = per_row(x), rstd = per_row(x);
    Tensor y = layer_forward(x, {}, {}, mean, rstd, eps);
    ctx->save_for_backward({x});
    ctx->saved_data["mean"] = mean;
    ctx->saved_data["rstd"] = rstd;
    return y;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const Tensor dx = layer_backward({}, grads[0].contiguous(), ctx->get_saved_variables()[0],
                                     ctx->saved_data["mean"].toTensor(), ctx->saved_data["rstd"].toTensor());
    return {dx, Tensor()};
  }
};

// Either result may be used alone, so a gradient that is absent is undefined, not a tensor of zeros.
struct AddRmsNorm : torch::autograd::Function<AddRmsNorm> {
  static variable_list forward(AutogradContext* ctx, const Tensor& x, const Tensor& branch, const Weight& weight,
                               const RmsForm& form) {
    const Tensor rstd = per_row(x), sum = at::empty_like(x);
    const Tensor normed = rms_forward(x, branch, sum, weight.value, rstd, form);
    keep(ctx, sum, rstd, weight, form);
    ctx->set_materialize_grads(false);
    return {sum, normed};
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    if (!grads[1].defined()) return {grads[0], grads[0], Tensor(), Tensor()};
    const Tensor dx =
        rms_backward(contiguous_or_none(grads[0]), grads[1].contiguous(), ctx->get_saved_variables()[0],
                     ctx->saved_data["rstd"].toTensor(), kept_weight(ctx), ctx->saved_data["offset"].toDouble());
    return {dx, dx, Tensor(), Tensor()};
  }
};

struct AddLayerNorm : torch::autograd::Function<AddLayerNorm> {
  static variable_list forward(AutogradContext* ctx, const Tensor& x, const Tensor& branch, double eps) {
    const Tensor mean = per_row(x), rstd = per_row(x), sum = at::empty_like(x);
    const Tensor normed = layer_forward(x, branch, sum, mean, rstd, eps);
    ctx->save_for_backward({sum});
    ctx->saved_data["mean"] = mean;
    ctx->saved_data["rstd"] = rstd;
    ctx->set_materialize_grads(false);
    return {sum, normed};
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    if (!grads[1].defined()) return {grads[0], grads[0], Tensor()};
    const Tensor dx = layer_backward(contiguous_or_none(grads[0]), grads[1].contiguous(), ctx->get_saved_variables()[0],
                                     ctx->saved_data["mean"].toTensor(), ctx->saved_data["rstd"].toTensor());
    return {dx, dx, Tensor()};
  }
};

}  // namespace

Tensor rms_norm(const Tensor& x, const Weight& weight, const RmsForm& form) {
  if (device::takes(x)) return device::rms_norm(x, weight, form);
  const Tensor rows = x.contiguous();
  if (!at::GradMode::is_enabled() || !weight.grad.defined())
    return rms_forward(rows, {}, {}, weight.value, per_row(rows), form);
  return RmsNorm::apply(rows, weight, form);
}

Tensor layer_norm(const Tensor& x, double eps) {
  if (device::takes(x)) return device::layer_norm(x, eps);
  const Tensor rows = x.contiguous();
  if (!at::GradMode::is_enabled()) return layer_forward(rows, {}, {}, per_row(rows), per_row(rows), eps);
  return LayerNorm::apply(rows, eps);
}

NormedSum add_rms_norm(const Tensor& x, const Tensor& branch, const Weight& weight, const RmsForm& form) {
  if (device::takes(x)) return device::add_rms_norm(x, branch, weight, form);
  ATHANOR_ASSERT(x.sizes() == branch.sizes());
  const Tensor rows = x.contiguous(), added = branch.contiguous();
  if (at::GradMode::is_enabled() && weight.grad.defined()) {
    const auto results = AddRmsNorm::apply(rows, added, weight, form);
    return {results[0], results[1]};
  }
  const Tensor sum = at::empty_like(rows);
  return {sum, rms_forward(rows, added, sum, weight.value, per_row(rows), form)};
}

NormedSum add_layer_norm(const Tensor& x, const Tensor& branch, double eps) {
  if (device::takes(x)) return device::add_layer_norm(x, branch, eps);
  ATHANOR_ASSERT(x.sizes() == branch.sizes());
  const Tensor rows = x.contiguous(), added = branch.contiguous();
  if (at::GradMode::is_enabled()) {
    const auto results = AddLayerNorm::apply(rows, added, eps);
    return {results[0], results[1]};
  }
  const Tensor sum = at::empty_like(rows);
  return {sum, layer_forward(rows, added, sum, per_row(rows), per_row(rows), eps)};
}

namespace portable {

Tensor rms_norm(const Tensor& x, const Tensor& weight, const RmsForm& form) {
  const Tensor wide = x.to(wide_type(x));
  const Tensor normed = wide * at::rsqrt(wide.pow(2).mean(-1, /*keepdim=*/true) + form.eps);
  return (normed * (weight.to(wide_type(x)) + form.offset)).to(x.scalar_type());
}

Tensor layer_norm(const Tensor& x, double eps) {
  const Tensor wide = x.to(wide_type(x));
  const Tensor centred = wide - wide.mean(-1, /*keepdim=*/true);
  return (centred * at::rsqrt(centred.pow(2).mean(-1, true) + eps)).to(x.scalar_type());
}

}  // namespace portable
}  // namespace athanor::ops
