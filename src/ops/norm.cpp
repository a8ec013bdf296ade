#include "ops/norm.h"

#include <torch/csrc/autograd/custom_function.h>

#include "kernels/accumulate.h"
#include "kernels/norm.h"

namespace athanor::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kRowsPerPartial = 64;  // of the weight's gradient; fixes the order of its sum

Tensor per_row(const Tensor& x) { return at::empty({num_rows(x)}, x.options().dtype(at::kFloat)); }

Tensor rms_forward(const Tensor& x, const Tensor& weight, const Tensor& rstd, double eps) {
  Tensor y = at::empty_like(x);
  const int64_t width = x.size(-1);
  with_element(x, [&](auto* tag) {
    using T = std::decay_t<decltype(*tag)>;
    const T* from = pointer<T>(x);
    const T* scale = pointer<T>(weight);
    T* to = pointer<T>(y);
    float* r = pointer<float>(rstd);
    for_rows(num_rows(x), width, [&](int64_t begin, int64_t end) {
      kernels::rms_norm_forward(from + begin * width, scale, to + begin * width, r + begin, end - begin, width,
                                static_cast<float>(eps));
    });
  });
  return y;
}

struct RmsNorm : torch::autograd::Function<RmsNorm> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Weight& weight, double eps) {
    const Tensor rstd = per_row(x);
    Tensor y = rms_forward(x, weight.value, rstd, eps);
    ctx->save_for_backward({x});
    ctx->saved_data["rstd"] = rstd;
    ctx->saved_data["weight"] = weight.value;
    ctx->saved_data["grad"] = weight.grad;
    return y;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const Tensor x = ctx->get_saved_variables()[0], dy = grads[0].contiguous(), dx = at::empty_like(x);
    const Tensor rstd = ctx->saved_data["rstd"].toTensor(), weight = ctx->saved_data["weight"].toTensor();
    const Tensor grad = ctx->saved_data["grad"].toTensor();
    const int64_t rows = num_rows(x), width = x.size(-1), blocks = (rows + kRowsPerPartial - 1) / kRowsPerPartial;
    const Tensor partials = at::zeros({blocks, width}, grad.options());
    float* partial = pointer<float>(partials);
    with_element(x, [&](auto* tag) {
      using T = std::decay_t<decltype(*tag)>;
      const T *dyp = pointer<T>(dy), *xp = pointer<T>(x), *wp = pointer<T>(weight);
      T* dxp = pointer<T>(dx);
      const float* rp = pointer<float>(rstd);
      at::parallel_for(0, blocks, 1, [&](int64_t begin, int64_t end) {
        for (int64_t b = begin; b < end; ++b) {
          const int64_t row = b * kRowsPerPartial, count = std::min(kRowsPerPartial, rows - row);
          kernels::rms_norm_backward(dyp + row * width, xp + row * width, wp, rp + row, dxp + row * width,
                                     partial + b * width, count, width);
        }
      });
    });
    for (int64_t b = 0; b < blocks; ++b) kernels::accumulate(pointer<float>(grad), partial + b * width, width);
    return {dx, Tensor(), Tensor()};
  }
};

Tensor layer_forward(const Tensor& x, const Tensor& mean, const Tensor& rstd, double eps) {
  Tensor y = at::empty_like(x);
  const int64_t width = x.size(-1);
  with_element(x, [&](auto* tag) {
    using T = std::decay_t<decltype(*tag)>;
    const T* from = pointer<T>(x);
    T* to = pointer<T>(y);
    float *m = pointer<float>(mean), *r = pointer<float>(rstd);
    for_rows(num_rows(x), width, [&](int64_t begin, int64_t end) {
      kernels::layer_norm_forward(from + begin * width, to + begin * width, m + begin, r + begin, end - begin, width,
                                  static_cast<float>(eps));
    });
  });
  return y;
}

struct LayerNorm : torch::autograd::Function<LayerNorm> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, double eps) {
    const Tensor mean = per_row(x), rstd = per_row(x);
    Tensor y = layer_forward(x, mean, rstd, eps);
    ctx->save_for_backward({x});
    ctx->saved_data["mean"] = mean;
    ctx->saved_data["rstd"] = rstd;
    return y;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const Tensor x = ctx->get_saved_variables()[0], dy = grads[0].contiguous(), dx = at::empty_like(x);
    const Tensor mean = ctx->saved_data["mean"].toTensor(), rstd = ctx->saved_data["rstd"].toTensor();
    const int64_t width = x.size(-1);
    with_element(x, [&](auto* tag) {
      using T = std::decay_t<decltype(*tag)>;
      const T *dyp = pointer<T>(dy), *xp = pointer<T>(x);
      T* dxp = pointer<T>(dx);
      const float *m = pointer<float>(mean), *r = pointer<float>(rstd);
      for_rows(num_rows(x), width, [&](int64_t begin, int64_t end) {
        kernels::layer_norm_backward(dyp + begin * width, xp + begin * width, m + begin, r + begin, dxp + begin * width,
                                     end - begin, width);
      });
    });
    return {dx, Tensor()};
  }
};

}  // namespace

Tensor rms_norm(const Tensor& x, const Weight& weight, double eps) {
  const Tensor rows = x.contiguous();
  if (!at::GradMode::is_enabled() || !weight.grad.defined()) return rms_forward(rows, weight.value, per_row(rows), eps);
  return RmsNorm::apply(rows, weight, eps);
}

Tensor layer_norm(const Tensor& x, double eps) {
  const Tensor rows = x.contiguous();
  if (!at::GradMode::is_enabled()) return layer_forward(rows, per_row(rows), per_row(rows), eps);
  return LayerNorm::apply(rows, eps);
}

namespace portable {

Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps) {
  const Tensor wide = x.to(wide_type(x));
  const Tensor normed = wide * at::rsqrt(wide.pow(2).mean(-1, /*keepdim=*/true) + eps);
  return (normed * weight.to(wide_type(x))).to(x.scalar_type());
}

Tensor layer_norm(const Tensor& x, double eps) {
  const Tensor wide = x.to(wide_type(x));
  const Tensor centred = wide - wide.mean(-1, /*keepdim=*/true);
  return (centred * at::rsqrt(centred.pow(2).mean(-1, true) + eps)).to(x.scalar_type());
}

}  // namespace portable
}  // namespace athanor::ops
