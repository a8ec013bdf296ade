#include "ops/library_products.h"

#include <algorithm>

#include "kernels/accumulate.h"
#include "kernels/gemm_pack.h"
#include "ops/library_threads.h"

namespace athanor::ops::library {
namespace {

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

}  // namespace

template <class T>
void multiply(const std::vector<Product<T>>& products) {
  const auto parts = parts_of(products);
  for_each_single_threaded(static_cast<int64_t>(parts.size()), [&](int64_t i) {
    const ProductPart& part = parts[static_cast<size_t>(i)];
    Part<T>(products[static_cast<size_t>(part.index)], part).run();
  });
}

template void multiply<float>(const std::vector<Product<float>>&);
template void multiply<kernels::Bf16>(const std::vector<Product<kernels::Bf16>>&);

}  // namespace athanor::ops::library
