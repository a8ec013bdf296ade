// OLMo's norm, which has no parameters.

#include "kernels/cuda/layer_norm.h"

#include "ops/device.h"
#include "ops/device/on_stream.h"
#include "ops/norm.h"

namespace athanor::ops::device {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// What backward needs of each row.
struct RowStatistics {
  Tensor mean, rstd;
  explicit RowStatistics(const Tensor& x)
      : mean(at::empty({num_rows(x)}, x.options().dtype(at::kFloat))), rstd(at::empty_like(mean)) {}
};

Tensor norm_rows(const Tensor& x, const Tensor& branch, const Tensor& sum, const RowStatistics& rows, double eps) {
  const Tensor y = at::empty_like(x);
  const OnStream stream(x);
  with_element(x, [&](auto* tag) {
    using T = std::decay_t<decltype(*tag)>;
    kernels::cuda::layer_norm_forward<T>(stream, data<T>(x), data<T>(branch), data<T>(sum), data<T>(y),
                                         data<float>(rows.mean), data<float>(rows.rstd), num_rows(x), x.size(-1),
                                         static_cast<float>(eps));
  });
  return y;
}

void keep_rows(AutogradContext* ctx, const Tensor& x, const RowStatistics& rows) {
  ctx->save_for_backward({x});
  ctx->saved_data["mean"] = rows.mean;
  ctx->saved_data["rstd"] = rows.rstd;
}

Tensor norm_rows_backward(AutogradContext* ctx, const Tensor& dsum, const Tensor& dnormed) {
  const Tensor x = ctx->get_saved_variables()[0], dy = dnormed.contiguous(), stream_part = contiguous_or_none(dsum);
  const Tensor dx = at::empty_like(x);
  const Tensor mean = ctx->saved_data["mean"].toTensor(), rstd = ctx->saved_data["rstd"].toTensor();
  const OnStream stream(x);
  with_element(x, [&](auto* tag) {
    using T = std::decay_t<decltype(*tag)>;
    kernels::cuda::layer_norm_backward<T>(stream, data<T>(stream_part), data<T>(dy), data<T>(x), data<float>(mean),
                                          data<float>(rstd), data<T>(dx), num_rows(x), x.size(-1));
  });
  return dx;
}

struct LayerNorm : torch::autograd::Function<LayerNorm> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, double eps) {
    const RowStatistics rows(x);
    keep_rows(ctx, x, rows);
    return norm_rows(x, {}, {}, rows, eps);
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    return {norm_rows_backward(ctx, {}, grads[0]), Tensor()};
  }
};

// Either result may be used alone, so a gradient that is absent is undefined, not a tensor of zeros.
struct AddLayerNorm : torch::autograd::Function<AddLayerNorm> {
  static variable_list forward(AutogradContext* ctx, const Tensor& x, const Tensor& branch, double eps) {
    const RowStatistics rows(x);
    const Tensor sum = at::empty_like(x);
    const Tensor normed = norm_rows(x, branch, sum, rows, eps);
    keep_rows(ctx, sum, rows);
    ctx->set_materialize_grads(false);
    return {sum, normed};
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    if (!grads[1].defined()) return {grads[0], grads[0], Tensor()};
    const Tensor dx = norm_rows_backward(ctx, grads[0], grads[1]);
    return {dx, dx, Tensor()};
  }
};

}  // namespace

Tensor layer_norm(const Tensor& x, double eps) {
  const Tensor rows = x.contiguous();
  return has_kernels(x) ? LayerNorm::apply(rows, eps) : portable::layer_norm(rows, eps);
}

NormedSum add_layer_norm(const Tensor& x, const Tensor& branch, double eps) {
  ATHANOR_ASSERT(x.sizes() == branch.sizes());
  const Tensor rows = x.contiguous(), added = branch.contiguous();
  if (has_kernels(x)) {
    const auto results = AddLayerNorm::apply(rows, added, eps);
    return {results[0], results[1]};
  }
  const Tensor sum = rows + added;
  return {sum, portable::layer_norm(sum, eps)};
}

}  // namespace athanor::ops::device
