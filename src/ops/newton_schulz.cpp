#include "ops/newton_schulz.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/adamw.h"
#include "kernels/symmetric.h"
#include "ops/tiles.h"

namespace athanor::ops {
namespace {

// Returns the number of matrices of this shape that together have at most 2²⁵ elements (on a device 2²⁷, whose
// products must be large), and at least one.
int64_t matrices_at_once(int64_t rows, int64_t columns, bool on_device) {
  const int64_t most_elements = int64_t{1} << (on_device ? 27 : 25);
  return std::max<int64_t>(1, most_elements / std::max<int64_t>(1, rows * columns));
}

using kernels::Product;

constexpr double kLeastNorm = 1e-7;    // smaller matrices are not blown up
constexpr int64_t kLeaf = 128;         // triangles up to this size are computed as squares
constexpr int64_t kLibraryLeaf = 512;  // the same for the library, whose calls must be large

// 1 / ‖matrix‖ of each. The bits are those of any number of threads: squares of blocks of fixed size are added in
// order.
std::vector<float> scales_of(const Tensor& stack) {
  if (stack.is_meta()) return {};
  constexpr int64_t kBlock = int64_t{1} << 18;
  const int64_t batch = stack.size(0), n = stack.size(1) * stack.size(2), blocks = (n + kBlock - 1) / kBlock;
  const float* values = stack.const_data_ptr<float>();
  std::vector<double> sums(static_cast<size_t>(batch * blocks));
  for_rows(batch * blocks, kBlock, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t at = i % blocks * kBlock;
      sums[static_cast<size_t>(i)] = kernels::sum_of_squares(values + i / blocks * n + at, std::min(kBlock, n - at));
    }
  });
  std::vector<float> scales;
  for (auto first = sums.begin(); first != sums.end(); first += blocks)
    scales.push_back(
        static_cast<float>(1 / std::max(std::sqrt(std::accumulate(first, first + blocks, 0.0)), kLeastNorm)));
  return scales;
}

// One matrix [m, n], m ≤ n, and what its iteration needs, in the memory of a batch.
template <class T>
struct Iteration {
  T *x, *next, *gram, *factor;
  float* square;  // A² in fp32; null if it is first rounded into `factor`
  int64_t m, n;
};

// Calls block(row, column, rows, columns) for rectangles that together have each element on or below the diagonal once,
// and some above it: a square of half the size, between the triangles of the halves.
template <class F>
void for_each_block_below(int64_t begin, int64_t end, int64_t leaf, F block) {
  const int64_t size = end - begin;
  if (size <= leaf) return block(begin, begin, size, size);
  const int64_t middle = begin + (size / 2 + kLeaf - 1) / kLeaf * kLeaf;
  if (middle >= end) return block(begin, begin, size, size);
  for_each_block_below(begin, middle, leaf, block);
  for_each_block_below(middle, end, leaf, block);
  block(middle, begin, end - middle, middle - begin);
}

// The lower triangle of F Fᵀ for F [m, k]: rounded into `out`, or added to `sum`, of which the other is null.
template <class T>
void add_triangle(const T* factor, int64_t m, int64_t k, T* out, float* sum, int64_t leaf,
                  std::vector<Product<T>>& products) {
  for_each_block_below(0, m, leaf, [&](int64_t row, int64_t column, int64_t rows, int64_t columns) {
    Product<T> product;
    product.m = rows, product.n = columns, product.k = k;
    product.first = {{factor + row * k, k, false}, {factor + column * k, k, true}};
    product.out = out ? out + row * m + column : nullptr;
    product.sum = sum ? sum + row * m + column : nullptr;
    product.ld = m;
    products.push_back(product);
  });
}

template <class T>
void add_step(const Iteration<T>& matrix, std::vector<Product<T>>& products) {
  Product<T> product;
  product.m = matrix.m, product.n = matrix.n, product.k = matrix.m;
  product.first = {{matrix.factor, matrix.m, false}, {matrix.x, matrix.n, false}};
  product.out = matrix.next;
  product.ld = matrix.n;
  products.push_back(product);
}

// Calls f(matrix, begin, end) for the rows of all matrices of `like` in bands, which threads take.
template <class F>
void for_each_band(const Tensor& like, int64_t matrices, int64_t rows, int64_t columns, F f) {
  if (like.is_meta()) return;
  constexpr int64_t kBand = 64;
  const int64_t bands = (rows + kBand - 1) / kBand;
  for_rows(matrices * bands, kBand * columns, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = i % bands * kBand;
      f(i / bands, row, std::min(row + kBand, rows));
    }
  });
}

template <class T>
void iterate(const Tensor& like, std::vector<Iteration<T>>& batch, const NewtonSchulz& how, MatmulPath path) {
  const auto [a, b, c] = how.coefficients;
  const auto fa = static_cast<float>(a), fb = static_cast<float>(b), fc = static_cast<float>(c);
  const int64_t leaf = path == MatmulPath::kLibrary ? kLibraryLeaf : kLeaf;
  std::vector<Product<T>> gram, square, step;
  for (const auto& matrix : batch) {
    add_triangle<T>(matrix.x, matrix.m, matrix.n, matrix.gram, nullptr, leaf, gram);
    add_triangle<T>(matrix.gram, matrix.m, matrix.m, matrix.square ? nullptr : matrix.factor, matrix.square, leaf,
                    square);  // A² = A Aᵀ
    add_step(matrix, step);
  }
  const int64_t m = batch.front().m;
  const auto for_each = [&](auto f) {
    for_each_band(like, std::ssize(batch), m, m,
                  [&](int64_t i, int64_t begin, int64_t end) { f(batch[static_cast<size_t>(i)], begin, end); });
  };
  multiply(like, path, gram);
  for_each([](const Iteration<T>& matrix, int64_t begin, int64_t end) {
    kernels::mirror(matrix.gram, matrix.m, begin, end);
    if (matrix.square) std::fill(matrix.square + begin * matrix.m, matrix.square + end * matrix.m, 0.0f);
  });
  multiply(like, path, square);
  for_each([=](const Iteration<T>& matrix, int64_t begin, int64_t end) {
    if (matrix.square)
      return kernels::add_symmetric(fa, fb, matrix.gram, fc, matrix.square, matrix.factor, matrix.m, begin, end);
    kernels::add_symmetric<T, T>(fa, fb, matrix.gram, fc, matrix.factor, matrix.factor, matrix.m, begin, end);
  });
  multiply(like, path, step);
  for (auto& matrix : batch) std::swap(matrix.x, matrix.next);
}

template <class T>
void orthogonalize_batch(const Tensor& stack, const NewtonSchulz& how) {
  const int64_t batch = stack.size(0), rows = stack.size(1), columns = stack.size(2);
  const int64_t m = std::min(rows, columns), n = std::max(rows, columns);
  const bool turned = rows > columns;
  const auto options = stack.options().dtype(how.dtype);
  const Tensor x = at::empty({batch, m, n}, options), next = at::empty_like(x);
  const Tensor gram = at::empty({batch, m, m}, options), factor = at::empty_like(gram);
  const MatmulPath path = matmul_path(x, ProductKind::kDense);
  // The library rounds a product to its type before it can be added.
  const bool sums = how.dtype != at::kFloat && path != MatmulPath::kLibrary;
  const Tensor square = at::empty({sums ? batch : 0, m, m}, stack.options());
  const auto scales = scales_of(stack);
  auto* values = pointer<float>(stack);
  for_each_band(x, batch, rows, columns, [&](int64_t i, int64_t begin, int64_t end) {
    kernels::convert_rows(values + i * m * n, rows, columns, scales[static_cast<size_t>(i)], turned,
                          pointer<T>(x) + i * m * n, begin, end);
  });
  std::vector<Iteration<T>> all;
  for (int64_t i = 0; i < batch; ++i)
    all.push_back({pointer<T>(x) + i * m * n, pointer<T>(next) + i * m * n, pointer<T>(gram) + i * m * m,
                   pointer<T>(factor) + i * m * m, sums ? pointer<float>(square) + i * m * m : nullptr, m, n});
  for (int64_t step = 0; step < how.steps; ++step) iterate(x, all, how, path);
  for_each_band(x, batch, m, n, [&](int64_t i, int64_t begin, int64_t end) {
    kernels::convert_rows(all[static_cast<size_t>(i)].x, m, n, 1.0f, turned, values + i * m * n, begin, end);
  });
}

}  // namespace

void orthogonalize(const Tensor& stack, const NewtonSchulz& how) {
  ATHANOR_ASSERT(stack.dim() == 3 && stack.scalar_type() == at::kFloat && stack.is_contiguous());
  const at::NoGradGuard no_grad;
  const int64_t at_once = matrices_at_once(stack.size(1), stack.size(2), !on_host(stack));
  for (int64_t begin = 0; begin < stack.size(0); begin += at_once) {
    const Tensor part = stack.narrow(0, begin, std::min(at_once, stack.size(0) - begin));
    if (!on_host(stack))
      portable::orthogonalize(part, how);
    else
      how.dtype == at::kFloat ? orthogonalize_batch<float>(part, how) : orthogonalize_batch<kernels::Bf16>(part, how);
  }
}

double orthogonalize_flops(int64_t rows, int64_t columns, int64_t steps) {
  const auto m = static_cast<double>(std::min(rows, columns)), n = static_cast<double>(std::max(rows, columns));
  return static_cast<double>(steps) * (m * m * n + m * m * m + 2 * m * m * n);
}

namespace portable {

void orthogonalize(const Tensor& stack, const NewtonSchulz& how) {
  const auto [a, b, c] = how.coefficients;
  const bool turned = stack.size(1) > stack.size(2);
  const Tensor norm = at::linalg_vector_norm(stack, 2, at::IntArrayRef{1, 2}, true, at::kDouble).clamp_min(kLeastNorm);
  Tensor x = (turned ? stack.transpose(1, 2) : stack).mul(norm.reciprocal().to(at::kFloat)).to(how.dtype).contiguous();
  for (int64_t step = 0; step < how.steps; ++step) {
    const Tensor gram = at::bmm(x, x.transpose(1, 2));
    const Tensor factor = at::baddbmm(gram, gram, gram, b, c);
    x = at::baddbmm(x, factor, x, a, 1);
  }
  stack.copy_(turned ? x.transpose(1, 2) : x);
}

}  // namespace portable
}  // namespace athanor::ops
