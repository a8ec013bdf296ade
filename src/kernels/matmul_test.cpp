#include "kernels/matmul.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <utility>

#include "kernels/gemm_tile.h"

namespace athanor::kernels::matmul_test {
namespace {

struct Shape {
  int64_t m, n, k;
};

// One row, one column, one k; and the edges of a tile (12 × 32), of a step (2), of chunks (1024, 2048) of a slice (192,
// 256), and of a part (720 × 768, 960 × 1024).
const std::vector<Shape> kShapes = {{1, 1, 1},       {12, 32, 2},     {13, 33, 3},    {5, 31, 64},
                                    {24, 64, 33},    {11, 96, 40},    {37, 70, 129},  {970, 40, 17},
                                    {25, 530, 1030}, {7, 1100, 2050}, {14, 70, 4101}, {150, 140, 700}};

template <class T>
struct Values {
  std::vector<T> data;
  Values(int64_t count, uint32_t seed) : data(static_cast<size_t>(count)) {
    std::minstd_rand random(seed);
    std::normal_distribution<float> normal;
    for (T& x : data) store(x, normal(random));
  }
};

// A product with its matrices, whose rows are a little longer than needed.
template <class T>
class Case {
 public:
  Case(Shape shape, bool a_transposed, bool b_transposed, bool two_factors)
      : shape_(shape), a_{shape.m * shape.k + 3 * (shape.m + shape.k), 1}, b_{shape.k * shape.n +
                                                                                  5 * (shape.k + shape.n),
                                                                              2},
        c_{two_factors ? std::ssize(a_.data) : 0, 3}, d_{two_factors ? std::ssize(b_.data) : 0, 4} {
    product.m = shape.m, product.n = shape.n, product.k = shape.k;
    const int64_t a_ld = (a_transposed ? shape.m : shape.k) + 3, b_ld = (b_transposed ? shape.k : shape.n) + 5;
    product.first = {{a_.data.data(), a_ld, a_transposed}, {b_.data.data(), b_ld, b_transposed}};
    if (two_factors) product.second = {{c_.data.data(), a_ld, a_transposed}, {d_.data.data(), b_ld, b_transposed}};
    product.ld = shape.n + 1;
  }

  // Some of the results: Σ a·b and Σ |a·b| of each, in double.
  struct Exact {
    int64_t i, j;
    double sum, norm;
  };
  std::vector<Exact> some_exact() const {
    std::vector<Exact> some;
    for (int64_t i = 0; i < shape_.m; i += 1 + shape_.m / 40) {
      for (int64_t j = 0; j < shape_.n; j += 1 + shape_.n / 40) {
        const auto [sum, norm] = exact(i, j);
        some.push_back({i, j, sum, norm});
      }
    }
    return some;
  }

  Product<T> product;

 private:
  std::pair<double, double> exact(int64_t i, int64_t j) const {
    double sum = 0, norm = 0;
    for (int f = 0; f < product.num_factors(); ++f) {
      const auto& [a, b] = f == 0 ? product.first : product.second;
      for (int64_t k = 0; k < product.k; ++k) {
        const double term = static_cast<double>(load(a.data[a.transposed ? k * a.ld + i : i * a.ld + k])) *
                            static_cast<double>(load(b.data[b.transposed ? j * b.ld + k : k * b.ld + j]));
        sum += term;
        norm += std::abs(term);
      }
    }
    return {sum, norm};
  }

  Shape shape_;
  Values<T> a_, b_, c_, d_;
};

template <class T>
void run(MatmulPath path, const std::vector<Product<T>>& products, const std::vector<ProductPart>& parts) {
  std::vector<char> scratch(static_cast<size_t>(scratch_bytes(path, products)) + 64);
  void* aligned = reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(scratch.data()) + 63) / 64 * 64);
  for (size_t i = 0; i < parts.size(); ++i)
    multiply(path, products, parts[i], i + 1 < parts.size() ? &parts[i + 1] : nullptr, aligned);
}

template <class T>
void run(MatmulPath path, const Product<T>& product) {
  run<T>(path, {product}, cut_into_parts<T>(path, {product}));
}

// The error of fp32 sums of k terms, then one rounding to T.
template <class T>
double bound(const Product<T>& p, double norm, double result) {
  const double terms = static_cast<double>(p.k * p.num_factors()) + 1, unit = std::ldexp(1.0, -24);
  return terms * unit / (1 - terms * unit) * norm + std::ldexp(std::abs(result), sizeof(T) == 2 ? -8 : -24) + 1e-37;
}

// The paths that have their own tiles for T.
template <class T>
std::vector<MatmulPath> tile_paths() {
  std::vector<MatmulPath> paths = paths_here();
  std::erase(paths, MatmulPath::kLibrary);
  if (sizeof(T) == 4) std::erase(paths, MatmulPath::kAvx512Bf16);
  return paths;
}

template <class T>
class Matmul : public testing::Test {
 protected:
  void SetUp() override {
    if (tile_paths<T>().empty()) GTEST_SKIP() << "this CPU has no AVX2: the library multiplies";
  }
  template <class F>
  static void on_each_path(F f) {
    for (const MatmulPath path : tile_paths<T>()) {
      SCOPED_TRACE(name_of(path));
      f(path);
    }
  }
};
using Elements = testing::Types<float, Bf16>;
TYPED_TEST_SUITE(Matmul, Elements);

TYPED_TEST(Matmul, OfEveryLayoutAndEdgeIsTheProductToTheRoundingOfItsSums) {
  for (const Shape shape : kShapes) {
    for (int layout = 0; layout < 8; ++layout) {
      Case<TypeParam> c(shape, layout & 1, layout & 2, layout & 4);
      const auto exact = c.some_exact();
      this->on_each_path([&](MatmulPath path) {
        std::vector<TypeParam> out(static_cast<size_t>(shape.m * c.product.ld), TypeParam{});
        c.product.out = out.data();
        run<TypeParam>(path, c.product);
        for (const auto& [i, j, sum, norm] : exact) {
          const double got = load(out[static_cast<size_t>(i * c.product.ld + j)]);
          ASSERT_NEAR(got, sum, bound(c.product, norm, sum))
              << shape.m << "x" << shape.n << "x" << shape.k << " layout " << layout << " at " << i << "," << j;
        }
        for (int64_t i = 0; i < shape.m; i += 1 + shape.m / 40) {
          const auto beside = out[static_cast<size_t>(i * c.product.ld + shape.n)];
          ASSERT_EQ(load(beside), 0.0f) << "wrote outside the matrix";
        }
      });
    }
  }
}

TYPED_TEST(Matmul, AddsToWhatTheSumHolds) {
  for (const Shape shape : kShapes) {
    Case<TypeParam> c(shape, true, false, false);
    const auto exact = c.some_exact();
    this->on_each_path([&](MatmulPath path) {
      std::vector<float> sum(static_cast<size_t>(shape.m * c.product.ld), 2.0f);
      c.product.sum = sum.data();
      run<TypeParam>(path, c.product);
      const double terms = static_cast<double>(shape.k) + 3;
      for (const auto& [i, j, value, norm] : exact) {
        ASSERT_NEAR(sum[static_cast<size_t>(i * c.product.ld + j)], 2.0 + value, terms * std::ldexp(norm + 2, -24));
      }
      for (int64_t i = 0; i < shape.m; i += 1 + shape.m / 40)
        ASSERT_EQ(sum[static_cast<size_t>(i * c.product.ld + shape.n)], 2.0f) << "wrote outside the matrix";
    });
  }
}

TYPED_TEST(Matmul, HasTheSameBitsHoweverItIsCutIntoParts) {
  for (const Shape shape : kShapes) {
    for (const bool a_transposed : {false, true}) {
      Case<TypeParam> c(shape, a_transposed, true, false);
      std::vector<ProductPart> parts;
      for (int64_t m = 0; m < shape.m; m += 7) {
        for (int64_t n = 0; n < shape.n; n += 50)
          parts.push_back({0, m, std::min(m + 7, shape.m), n, std::min(n + 50, shape.n)});
      }
      this->on_each_path([&](MatmulPath path) {
        std::vector<TypeParam> whole(static_cast<size_t>(shape.m * c.product.ld)), pieces = whole;
        c.product.out = whole.data();
        run<TypeParam>(path, c.product);
        c.product.out = pieces.data();
        run<TypeParam>(path, {c.product}, parts);
        EXPECT_EQ(std::memcmp(whole.data(), pieces.data(), whole.size() * sizeof(TypeParam)), 0);
      });
    }
  }
}

TYPED_TEST(Matmul, OfEmptyGroupsDoesNothing) {
  this->on_each_path([](MatmulPath path) {
    Case<TypeParam> none({0, 40, 8}, false, false, false), sum({12, 40, 0}, true, false, false);
    std::vector<float> held(12 * 41, 1.0f);
    sum.product.sum = held.data();
    const std::vector<Product<TypeParam>> products = {none.product, sum.product};
    run<TypeParam>(path, products, cut_into_parts(path, products));
    EXPECT_EQ(held, std::vector<float>(12 * 41, 1.0f));
  });
}

TYPED_TEST(Matmul, DoesNotReadBeyondAnOddRow) {
  this->on_each_path([](MatmulPath path) {
    // A NaN after each row of A would appear in the result as NaN · 0.
    const Shape shape{3, 5, 7};
    std::vector<TypeParam> a(3 * 8), b(7 * 5), out(3 * 5);
    for (auto& x : a) store(x, 1.0f);
    for (auto& x : b) store(x, 1.0f);
    for (int64_t i = 0; i < 3; ++i) store(a[static_cast<size_t>(i * 8 + 7)], std::nanf(""));
    Product<TypeParam> product{shape.m, shape.n, shape.k, {{a.data(), 8, false}, {b.data(), 5, false}}};
    product.out = out.data();
    product.ld = 5;
    run<TypeParam>(path, product);
    for (const auto x : out) EXPECT_EQ(load(x), 7.0f);
  });
}

// One result of the paths that widen, by their definition: f, then k, ascending, in chunks if it is added to a sum.
template <class T>
float chained(const Product<T>& p, int64_t i, int64_t j, float held) {
  constexpr int64_t kSumChunk = 1024;
  const int64_t chunk = p.sum ? kSumChunk : p.k;
  float result = held;
  for (int64_t begin = 0; begin < p.k; begin += chunk) {
    float sum = 0;
    for (int f = 0; f < p.num_factors(); ++f) {
      const auto& [a, b] = f == 0 ? p.first : p.second;
      for (int64_t k = begin; k < std::min(p.k, begin + chunk); ++k) {
        sum = std::fma(load(a.data[a.transposed ? k * a.ld + i : i * a.ld + k]),
                       load(b.data[b.transposed ? j * b.ld + k : k * b.ld + j]), sum);
      }
    }
    result = p.sum ? result + sum : sum;
  }
  return result;
}

template <class T>
void expect_chains(const std::vector<MatmulPath>& paths, Shape shape, int layout) {
  Case<T> c(shape, layout & 1, layout & 2, layout & 4);
  std::vector<T> out(static_cast<size_t>(shape.m * c.product.ld), T{});
  std::vector<float> sum(out.size(), 0.5f), expected(out.size());
  c.product.out = layout & 8 ? nullptr : out.data();
  c.product.sum = layout & 8 ? sum.data() : nullptr;
  for (int64_t i = 0; i < shape.m; ++i) {
    for (int64_t j = 0; j < shape.n; ++j)
      expected[static_cast<size_t>(i * c.product.ld + j)] = chained(c.product, i, j, 0.5f);
  }
  for (const MatmulPath path : paths) {
    SCOPED_TRACE(name_of(path));
    std::ranges::fill(out, T{});
    std::ranges::fill(sum, 0.5f);
    run<T>(path, c.product);
    for (int64_t i = 0; i < shape.m; ++i) {
      for (int64_t j = 0; j < shape.n; ++j) {
        const auto at = static_cast<size_t>(i * c.product.ld + j);
        T rounded;
        store(rounded, expected[at]);
        ASSERT_EQ(layout & 8 ? sum[at] : load(out[at]), layout & 8 ? expected[at] : load(rounded))
            << shape.m << "x" << shape.n << "x" << shape.k << " layout " << layout << " at " << i << "," << j;
      }
    }
  }
}

// So both of these paths have the same bits on every chip.
TYPED_TEST(Matmul, OfAPathThatWidensIsOneFusedMultiplyAddForEachKAscending) {
  std::vector<MatmulPath> paths = tile_paths<TypeParam>();
  std::erase(paths, MatmulPath::kAvx512Bf16);
  for (int layout = 0; layout < 16; ++layout) {
    for (int64_t m = 1; m <= 13; ++m) expect_chains<TypeParam>(paths, {m, 33 - m, 2 * m - 1}, layout);
    for (int64_t n = 1; n <= 33; n += 4) expect_chains<TypeParam>(paths, {13, n, 8 + n}, layout);
  }
  for (const int layout : {0, 1, 6, 7, 9, 14}) {
    expect_chains<TypeParam>(paths, {150, 70, 700}, layout);  // in slices
    expect_chains<TypeParam>(paths, {130, 33, 1500}, layout);
  }
}

}  // namespace
}  // namespace athanor::kernels::matmul_test
