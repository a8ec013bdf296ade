#include "ops/linear.h"

#include <torch/csrc/autograd/custom_function.h>

#include "kernels/accumulate.h"
#include "kernels/gemm_tile.h"
#include "ops/device.h"
#include "ops/tiles.h"

namespace athanor::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kProductElements = int64_t{1} << 23;  // 16 MiB of bf16: several times a core's cache, a few calls

template <class T>
void add_on_tiles(MatmulPath path, const Tensor& grad, const Tensor& a, const Tensor& b) {
  kernels::Product<T> product;
  product.m = a.size(1), product.n = b.size(1), product.k = a.size(0);
  product.first = {{pointer<T>(a), a.size(1), true}, {pointer<T>(b), b.size(1), false}};
  product.sum = pointer<float>(grad);
  product.ld = b.size(1);
  multiply_on_tiles<T>(path, {product});
}

Tensor folded(const Tensor& x) { return x.reshape({-1, x.size(-1)}).contiguous(); }

// x's shape with the last dim replaced.
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
  const at::NoGradGuard no_grad;
  if (a.size(0) == 0) return;
  const MatmulPath path = matmul_path(a, ProductKind::kDense);
  if (path == MatmulPath::kLibrary) return library::add_outer_product(grad, a, b);
  with_element(a, [&](auto* tag) { add_on_tiles<std::decay_t<decltype(*tag)>>(path, grad, a, b); });
}

namespace library {

void add_outer_product(const Tensor& grad, const Tensor& a, const Tensor& b) {
  const at::NoGradGuard no_grad;
  if (a.size(0) == 0) return;
  if (a.scalar_type() == at::kFloat) {
    Tensor sum = grad;
    sum.addmm_(a.t(), b);
    return;
  }
  // The product of a vocabulary's rows would be as large as its weight: a block of them is held at a time.
  const int64_t rows = a.size(1), width = b.size(1), block = std::max<int64_t>(1, kProductElements / width);
  float* sum = pointer<float>(grad);
  for (int64_t first = 0; first < rows; first += block) {
    const int64_t count = std::min(block, rows - first);
    const Tensor product = at::mm(a.narrow(1, first, count).t(), b).contiguous();
    const auto* term = pointer<kernels::Bf16>(product);
    float* into = sum + first * width;
    for_rows(product.numel(), 1,
             [&](int64_t begin, int64_t end) { kernels::accumulate(into + begin, term + begin, end - begin); });
  }
}

}  // namespace library

Tensor linear(const Tensor& x, const Weight& weight) {
  if (at::GradMode::is_enabled() && weight.grad.defined()) return Linear::apply(x, weight);
  // Packing a weight for a few rows (a token that is generated) costs more than multiplying by it. Not in training,
  // where a forward without gradients is computed again with them (parallel/recompute.h) and has to have the same bits.
  if (num_rows(x) < kernels::kTileColumns && !weight.grad.defined()) return at::linear(x, weight.value);
  return matmul(folded(x), weight.value, /*transposed=*/true).view(shape_with(x, weight.value.size(0)));
}

}  // namespace athanor::ops
