// Newton and Schulz's iteration against the same formula with running errors, and what it makes of a matrix.

#include "ops/newton_schulz.h"

#include "guarded/device.h"
#include "kernels/error_bound.h"
#include "ops/testing/on_path.h"
#include "ops/testing/op_testing.h"

namespace athanor::ops::newton_schulz_test {
namespace {

using namespace test;

constexpr NewtonSchulz kFp32{5, {3.4445, -4.7750, 2.0315}, at::kFloat},
    kBf16{5, {3.4445, -4.7750, 2.0315}, at::kBFloat16};

Tensor in_double(const Tensor& stack, const NewtonSchulz& how) {
  Tensor x = stack.to(at::kDouble);
  const bool turned = x.size(1) > x.size(2);
  if (turned) x = x.transpose(1, 2);
  x = x / at::linalg_vector_norm(x, 2, at::IntArrayRef{1, 2}, true);
  const auto [a, b, c] = how.coefficients;
  for (int64_t i = 0; i < how.steps; ++i) {
    const Tensor gram = x.matmul(x.transpose(1, 2));
    x = a * x + (b * gram + c * gram.matmul(gram)).matmul(x);
  }
  return turned ? x.transpose(1, 2) : x;
}

// One iteration from a known X, with the rounding of each product: A, A² and the factor are rounded to the type.
Tracked one_iteration(const Tensor& stack, at::ScalarType dtype) {
  const Tracked raw = exact(stack);
  const Tensor norm = at::linalg_vector_norm(raw.value, 2, at::IntArrayRef{1, 2}, true);
  const Tracked x = stored(raw * reciprocal(rounded(exact(norm))), dtype);
  const auto turn = [](const Tensor& t) { return t.transpose(1, 2); };
  // The library's path rounds a product once more before it is added.
  const Tracked gram = stored(matmul(x, x.view(turn)), dtype), square = stored(matmul(gram, gram), dtype);
  const Tracked eye = exact(at::eye(stack.size(1), at::kDouble));
  const Tracked factor =
      stored(gram * kFp32.coefficients[1] + square * kFp32.coefficients[2] + eye * kFp32.coefficients[0], dtype);
  return stored(matmul(factor, x), dtype);
}

TEST(NewtonSchulz, AnIterationIsWithinTheBoundOfItsProductsOnEveryPath) {
  for (const auto dtype : kComputeTypes) {
    for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{1, 1}, {3, 50}, {64, 64}, {65, 130}, {200, 333}}) {
      const Tensor stack = normal({2, rows, columns}, 8);
      const Tracked expected = one_iteration(stack, dtype);
      auto paths = tile_paths();
      paths.push_back(MatmulPath::kLibrary);
      for (const MatmulPath path : paths) {
        const OnPath on_path(path);
        const Tensor result = stack.clone();
        orthogonalize(result, {1, kFp32.coefficients, dtype});
        expect_within(result, expected, fmt::format("{} x {} {}", rows, columns, name_of(dtype)));
      }
      const Tensor portable = stack.clone();
      portable::orthogonalize(portable, {1, kFp32.coefficients, dtype});
      if (dtype == at::kFloat) expect_within(portable, expected, "portable");
    }
  }
}

TEST(NewtonSchulz, FiveIterationsMakeAMatrixNearlyOrthogonal) {
  for (const auto& how : {kFp32, kBf16}) {
    for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{64, 256}, {256, 64}, {96, 96}}) {
      const Tensor stack = normal({1, rows, columns}, 9) * 1e-3;
      Tensor result = stack.clone();
      orthogonalize(result, how);
      const auto singular = [](const Tensor& x) { return at::linalg_svdvals(x.to(at::kDouble)); };
      EXPECT_LT(singular(result).max().item<double>(), 1.3);
      // The smallest singular values of square matrices are too small for five iterations.
      if (rows != columns) {
        EXPECT_GT(singular(result).min().item<double>(), 0.6);
      }
    }
  }
}

TEST(NewtonSchulz, ATallMatrixIsTheTransposeOfAWideOne) {
  const Tensor wide = normal({3, 40, 100}, 10);
  Tensor tall = wide.transpose(1, 2).contiguous(), result = wide.clone();
  orthogonalize(result, kBf16);
  orthogonalize(tall, kBf16);
  expect_same_bits(tall.transpose(1, 2).contiguous(), result, "transposed");
}

TEST(NewtonSchulz, NeitherTheStackNorThreadsChangeABit) {
  for (const auto& how : {kFp32, kBf16}) {
    const Tensor stack = normal({5, 130, 140}, 11);
    Tensor together = stack.clone();
    orthogonalize(together, how);
    const int threads = at::get_num_threads();
    at::set_num_threads(threads == 1 ? 3 : 1);
    for (int64_t i = 0; i < 5; ++i) {
      Tensor alone = stack.narrow(0, i, 1).clone();
      orthogonalize(alone, how);
      expect_same_bits(alone, together.narrow(0, i, 1).contiguous(), "alone");
    }
    at::set_num_threads(threads);
  }
}

// With a = 1.5, b = −0.5, c = 0, singular values stay in [0, 1] and an error grows by 1.5 at most in an iteration. Each
// adds that of X Xᵀ, halved (m rows of elements that are sums of n products of norm 1), and that of the step (sums of m
// products of norm 1.5 √m).
double contraction_bound(int64_t m, int64_t n, int64_t steps) {
  const auto rows = static_cast<double>(m);
  const double one = rows * kernels::sum_error(n) / 2 + 1.5 * std::sqrt(rows) * kernels::sum_error(m) * rows;
  return one * (std::pow(1.5, static_cast<double>(steps)) - 1) / 0.5;
}

TEST(NewtonSchulz, AMatrixOfZerosStaysOneAndAnOddNumberOfIterationsIsRight) {
  Tensor zeros = at::zeros({2, 8, 16});
  orthogonalize(zeros, kBf16);
  EXPECT_EQ(zeros.count_nonzero().item<int64_t>(), 0);
  for (int64_t steps = 1; steps <= 4; ++steps) {
    const NewtonSchulz how{steps, {1.5, -0.5, 0}, at::kFloat};
    const Tensor stack = normal({1, 12, 30}, 12);
    Tensor result = stack.clone();
    orthogonalize(result, how);
    EXPECT_LT((result.to(at::kDouble) - in_double(stack, how)).abs().max().item<double>(),
              contraction_bound(12, 30, steps))
        << steps;
  }
}

}  // namespace
}  // namespace athanor::ops::newton_schulz_test
