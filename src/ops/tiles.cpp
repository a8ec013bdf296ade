#include "ops/tiles.h"

#include <algorithm>
#include <vector>

#include "kernels/accumulate.h"
#include "kernels/gemm_pack.h"
#include "kernels/matmul.h"
#include "ops/library_threads.h"
#include "ops/played.h"
#include "ops/taken_in_turn.h"

namespace athanor::ops {
namespace library {
namespace {

// Matrix products by the matrix library of libtorch (MKL or oneDNN), with bits that do not depend on the number of
// threads.
//
// The library divides a product among threads according to their number, which changes the last bits. So a product is
// cut here, by its shape alone, into parts that are each multiplied by one thread.

using kernels::divide_up;
using kernels::Matrix;
using kernels::Product;
using kernels::ProductPart;

// A call packs its right factor anew, which costs a tenth at 512 rows on chips with AMX, and a quarter at 256. Fewer
// parts than threads leave threads idle.
constexpr int64_t kMost = 1024, kLeast = 256, kWantedParts = 16;
constexpr int64_t kLine = 32;  // in elements

struct Cut {
  int64_t rows, columns;
};

// Divides as evenly as possible, in whole cache lines.
int64_t evenly(int64_t size, int64_t most) { return divide_up(divide_up(size, divide_up(size, most)), kLine) * kLine; }

template <class T>
Cut cut_of(const Product<T>& p, int64_t num_products) {
  Cut most{std::min(p.m, kMost), std::min(p.n, kMost)};
  while (num_products * divide_up(p.m, most.rows) * divide_up(p.n, most.columns) < kWantedParts) {
    int64_t& larger = most.rows > most.columns ? most.rows : most.columns;
    if (larger <= kLeast) break;
    larger = divide_up(larger, 2);
  }
  return {evenly(p.m, most.rows), evenly(p.n, most.columns)};
}

template <class T>
std::vector<ProductPart> parts_of(const std::vector<Product<T>>& products) {
  std::vector<ProductPart> parts;
  const auto count = static_cast<int64_t>(products.size());
  for (int64_t i = 0; i < count; ++i) {
    const Product<T>& p = products[static_cast<size_t>(i)];
    if (p.m == 0 || p.n == 0) continue;
    const Cut cut = cut_of(p, count);
    for (int64_t n = 0; n < p.n; n += cut.columns) {
      for (int64_t m = 0; m < p.m; m += cut.rows)
        parts.push_back({i, m, std::min(m + cut.rows, p.m), n, std::min(n + cut.columns, p.n)});
    }
  }
  return parts;
}

template <class T>
Tensor view_of(const T* data, int64_t rows, int64_t columns, int64_t row_stride, int64_t column_stride) {
  return at::from_blob(const_cast<T*>(data), {rows, columns}, {row_stride, column_stride}, scalar_type_of<T>());
}

template <class T>
class Part {
 public:
  Part(const Product<T>& p, const ProductPart& part)
      : p_(p), part_(part), rows_(part.m_end - part.m_begin), columns_(part.n_end - part.n_begin) {}

  void run() const {
    if (p_.sum) return add();
    Tensor out = view_of(p_.out + offset(), rows_, columns_, p_.ld, 1);
    at::mm_out(out, a(p_.first), b(p_.first));
    if (p_.num_factors() == 2) out.addmm_(a(p_.second), b(p_.second));
  }

 private:
  using Factors = typename Product<T>::Factors;

  int64_t offset() const { return part_.m_begin * p_.ld + part_.n_begin; }

  Tensor a(const Factors& f) const {
    const int64_t row = f.a.transposed ? 1 : f.a.ld, column = f.a.transposed ? f.a.ld : 1;
    return view_of(f.a.data + part_.m_begin * row, rows_, p_.k, row, column);
  }
  Tensor b(const Factors& f) const {
    const int64_t row = f.b.transposed ? 1 : f.b.ld, column = f.b.transposed ? f.b.ld : 1;
    return view_of(f.b.data + part_.n_begin * column, p_.k, columns_, row, column);
  }

  void add() const {
    if (p_.k == 0) return;
    float* sum = p_.sum + offset();
    if constexpr (std::is_same_v<T, float>) {
      view_of(sum, rows_, columns_, p_.ld, 1).addmm_(a(p_.first), b(p_.first));
    } else {
      const Tensor product = at::mm(a(p_.first), b(p_.first)).contiguous();
      const T* term = pointer<T>(product);
      for (int64_t i = 0; i < rows_; ++i) kernels::accumulate(sum + i * p_.ld, term + i * columns_, columns_);
    }
  }

  const Product<T>& p_;
  const ProductPart& part_;
  int64_t rows_, columns_;
};

// Makes the memory of the products that are rounded before they are added: one for each thread.
template <class T>
void hold_rounded(const Tensor& like, const std::vector<Product<T>>& products, const std::vector<ProductPart>& parts) {
  int64_t largest = 0;
  for (const ProductPart& part : parts) {
    if (products[static_cast<size_t>(part.index)].sum && !std::is_same_v<T, float>)
      largest = std::max(largest, (part.m_end - part.m_begin) * (part.n_end - part.n_begin));
  }
  at::empty({num_slots(std::ssize(parts)) * largest}, like.options());
}

// Computes all products, on every thread. If bf16 is summed into fp32, the product is rounded once before it is added:
// the library has no fp32 result for bf16 operands.
template <class T>
void multiply(const Tensor& like, const std::vector<Product<T>>& products) {
  const auto parts = parts_of(products);
  if (like.is_meta()) return hold_rounded(like, products, parts);
  for_each_single_threaded(static_cast<int64_t>(parts.size()), [&](int64_t i) {
    const ProductPart& part = parts[static_cast<size_t>(i)];
    Part<T>(products[static_cast<size_t>(part.index)], part).run();
  });
}

}  // namespace
}  // namespace library

namespace {

template <class T>
void multiply_on_tiles(const Tensor& like, MatmulPath path, const std::vector<kernels::Product<T>>& products) {
  const auto parts = kernels::cut_into_parts(path, products);
  const auto num_parts = static_cast<int64_t>(parts.size());
  const int64_t threads = num_slots(num_parts), bytes = kernels::scratch_bytes(path, products);
  if (num_parts == 0) return;
  const Tensor scratch = at::empty({threads * bytes}, like.options().dtype(at::kByte));
  if (like.is_meta()) return;
  for_each_in_turn(num_parts, [&](int64_t i, int64_t slot) {
    const auto at = [&](int64_t part) { return &parts[static_cast<size_t>(part)]; };
    kernels::multiply(path, products, *at(i), i + threads < num_parts ? at(i + threads) : nullptr,
                      scratch.data_ptr<uint8_t>() + slot * bytes);
  });
}

// For a played step, which only asks how large the parts are and whether each thread has one: products cut off where
// there are enough of them.
template <class T>
std::vector<kernels::Product<T>> with_fewer_parts(std::vector<kernels::Product<T>> products) {
  constexpr int64_t kMost = 1 << 13;
  for (kernels::Product<T>& p : products) p.m = std::min(p.m, kMost), p.n = std::min(p.n, kMost);
  return products;
}

template <class T>
Op op_of(const std::vector<kernels::Product<T>>& products) {
  Op op{"multiply"};
  for (const kernels::Product<T>& p : products) {
    const int64_t factors = p.num_factors(), out = p.m * p.n;
    op.flops += 2.0 * static_cast<double>(out) * static_cast<double>(p.k * factors);
    op.bytes_read += factors * (p.m + p.n) * p.k * static_cast<int64_t>(sizeof(T));
    const int64_t written = out * static_cast<int64_t>(p.sum ? sizeof(float) : sizeof(T));
    op.bytes_written += written;
    if (p.sum) op.bytes_read += written;
  }
  return op;
}

}  // namespace

bool multiplies_on_tiles(const Tensor& x, ProductKind kind) { return matmul_path(x, kind) != MatmulPath::kLibrary; }

bool product_bits_follow_rows(const Tensor& x) { return x.is_cpu() && !multiplies_on_tiles(x); }

template <class T>
void multiply(const Tensor& like, MatmulPath path, const std::vector<kernels::Product<T>>& products) {
  const auto run = [&](const std::vector<kernels::Product<T>>& all) {
    path == MatmulPath::kLibrary ? library::multiply(like, all) : multiply_on_tiles(like, path, all);
  };
  if (!like.is_meta()) return run(products);
  report(op_of(products));
  run(with_fewer_parts(products));
}
template void multiply<float>(const Tensor&, MatmulPath, const std::vector<kernels::Product<float>>&);
template void multiply<kernels::Bf16>(const Tensor&, MatmulPath, const std::vector<kernels::Product<kernels::Bf16>>&);

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
    multiply<T>(x, matmul_path(x, ProductKind::kDense), {product});
  });
}

Tensor matmul(const Tensor& x, const Tensor& w, bool transposed) {
  const Tensor out = at::empty({x.size(0), w.size(transposed ? 0 : 1)}, x.options());
  matmul_into(out, x, w, transposed);
  return out;
}

}  // namespace athanor::ops
