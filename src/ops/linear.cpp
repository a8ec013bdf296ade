#include "ops/linear.h"

#include <torch/csrc/autograd/custom_function.h>

#include "kernels/gemm_tile.h"
#include "ops/device.h"
#include "ops/tiles.h"

namespace athanor::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

Tensor folded(const Tensor& x) { return x.reshape({-1, x.size(-1)}).contiguous(); }

// Returns x's shape with the last dim replaced.
std::vector<int64_t> shape_with(const Tensor& x, int64_t width) {
  auto shape = x.sizes().vec();
  shape.back() = width;
  return shape;
}

struct Linear : torch::autograd::Function<Linear> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Weight& weight) {
    ctx->save_for_backward({x});
    ctx->saved_data["weight"] = weight.value;
    ctx->saved_data["grad"] = weight.grad;
    return matmul(folded(x), weight.value, /*transposed=*/true).view(shape_with(x, weight.value.size(0)));
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const Tensor x = ctx->get_saved_variables()[0];
    const Tensor weight = ctx->saved_data["weight"].toTensor(), grad = ctx->saved_data["grad"].toTensor();
    const Tensor dy = folded(grads[0]);
    add_outer_product(grad, dy, folded(x));
    return {matmul(dy, weight, /*transposed=*/false).view(x.sizes()), Tensor()};
  }
};

}  // namespace

void add_outer_product(const Tensor& grad, const Tensor& a, const Tensor& b) {
  if (device::takes(grad)) return device::add_outer_product(grad, a, b);
  with_element(a, [&](auto* tag) {
    using T = std::decay_t<decltype(*tag)>;
    kernels::Product<T> product;
    product.m = a.size(1), product.n = b.size(1), product.k = a.size(0);
    product.first = {{pointer<T>(a), product.m, true}, {pointer<T>(b), product.n, false}};
    product.sum = pointer<float>(grad);
    product.ld = product.n;
    multiply<T>(a, matmul_path(a, ProductKind::kDense), {product});
  });
}

Tensor linear(const Tensor& x, const Weight& weight) {
  if (at::GradMode::is_enabled() && weight.grad.defined()) return Linear::apply(x, weight);
  // The library has kernels for a few rows (new tokens of texts), whose bits depend on the number of rows. Those of
  // tiles do not, so they multiply any number. This path is not used in training: a forward without gradients is
  // computed again with them (parallel/recompute.h), and must have the same bits.
  const bool is_few = num_rows(x) < kernels::kTileColumns && !weight.grad.defined();
  if (is_few && !multiplies_on_tiles(x)) return at::linear(x, weight.value);
  return matmul(folded(x), weight.value, /*transposed=*/true).view(shape_with(x, weight.value.size(0)));
}

}  // namespace athanor::ops
