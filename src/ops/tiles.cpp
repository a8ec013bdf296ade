#include "ops/tiles.h"

#include "ops/library_products.h"
#include "ops/taken_in_turn.h"

namespace athanor::ops {

bool multiplies_on_tiles(const Tensor& x, ProductKind kind) { return matmul_path(x, kind) != MatmulPath::kLibrary; }

namespace {

template <class T>
void multiply_on_tiles(MatmulPath path, const std::vector<kernels::Product<T>>& products) {
  const auto parts = kernels::cut_into_parts(path, products);
  const auto num_parts = static_cast<int64_t>(parts.size());
  const int64_t threads = num_slots(num_parts), bytes = kernels::scratch_bytes(path, products);
  if (num_parts == 0) return;
  const Tensor scratch = at::empty({threads * bytes}, at::kByte);
  for_each_in_turn(num_parts, [&](int64_t i, int64_t slot) {
    const auto at = [&](int64_t part) { return &parts[static_cast<size_t>(part)]; };
    kernels::multiply(path, products, *at(i), i + threads < num_parts ? at(i + threads) : nullptr,
                      scratch.data_ptr<uint8_t>() + slot * bytes);
  });
}

}  // namespace

template <class T>
void multiply(MatmulPath path, const std::vector<kernels::Product<T>>& products) {
  path == MatmulPath::kLibrary ? library::multiply(products) : multiply_on_tiles(path, products);
}
template void multiply<float>(MatmulPath, const std::vector<kernels::Product<float>>&);
template void multiply<kernels::Bf16>(MatmulPath, const std::vector<kernels::Product<kernels::Bf16>>&);

void matmul_into(const Tensor& out, const Tensor& x, const Tensor& w, bool transposed) {
  if (!has_paths(x)) {
    Tensor result = out;
    at::mm_out(result, x, transposed ? w.t() : w);
    return;
  }
  with_element(x, [&](auto* tag) {
    using T = std::decay_t<decltype(*tag)>;
    kernels::Product<T> product;
    product.m = x.size(0), product.k = x.size(1), product.n = out.size(1);
    product.first = {{pointer<T>(x), product.k, false}, {pointer<T>(w), w.size(1), transposed}};
    product.out = pointer<T>(out);
    product.ld = product.n;
    multiply<T>(matmul_path(x, ProductKind::kDense), {product});
  });
}

Tensor matmul(const Tensor& x, const Tensor& w, bool transposed) {
  const Tensor out = at::empty({x.size(0), w.size(transposed ? 0 : 1)}, x.options());
  matmul_into(out, x, w, transposed);
  return out;
}

}  // namespace athanor::ops
