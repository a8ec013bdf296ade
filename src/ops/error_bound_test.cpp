#include "ops/error_bound.h"

#include <gtest/gtest-spi.h>

#include "ops/testing/op_testing.h"

namespace athanor::ops::error_bound_test {
namespace {

using namespace test;

TEST(ErrorBound, OfOneRoundingIsMetByTheWorstNumberAndNotExceeded) {
  // 1 + u is halfway between two numbers; just above it, rounding moves by almost u of the result.
  for (const auto& [dtype, u] : {std::pair{at::kBFloat16, 0x1p-8}, std::pair{at::kFloat, 0x1p-24}}) {
    const double x = 1 + u * (1 + 0x1p-20);
    const double moved = std::abs(at::scalar_tensor(x, at::kDouble).to(dtype).item<double>() - x);
    EXPECT_EQ(unit_roundoff(dtype), u);
    EXPECT_LE(moved, unit_roundoff(dtype) * x);
    EXPECT_GT(moved, unit_roundoff(dtype) * x * 0.99);
  }
}

TEST(ErrorBound, RefusesATypeWhoseRoundoffIsNotKnown) { EXPECT_ANY_THROW(unit_roundoff(at::kLong)); }

TEST(RunningError, BoundsAChainInFp32) {
  const Tensor a = normal({40, 70}, 1), b = normal({70, 30}, 2);
  const Tensor y = at::log(at::sum(at::exp(at::matmul(a, b) * 0.1), -1)) - at::rsqrt(at::sum(a * a, -1));
  const Tracked ea = exact(a), eb = exact(b);
  const Tracked expected = log(sum(exp(matmul(ea, eb) * 0.1), -1)) - rsqrt(sum(ea * ea, -1));
  expect_within(y, expected, "y");
  // The bound is not arbitrarily large: sums of 70 and 30 terms cannot cost more than some thousand roundings.
  EXPECT_LT((expected.error / expected.value.abs()).max().item<double>(), 1e3 * unit_roundoff(at::kFloat));
}

TEST(ExpectWithin, SeesOneElementOutsideANanAndAnotherShape) {
  static const Tensor value = at::ones({3}, at::kDouble), bound = at::full({3}, 0.25, at::kDouble);
  expect_within(value + 0.25, value, bound, "on the edge");
  static const Tensor off = at::tensor({1.0, 1.0, 1.26}), nan = at::tensor({1.0, std::nan(""), 1.0});
  EXPECT_NONFATAL_FAILURE(expect_within(off, value, bound, "x"), "element 2 is 1.26");
  EXPECT_NONFATAL_FAILURE(expect_within(nan, value, bound, "x"), "element 1 is nan");
  EXPECT_FATAL_FAILURE(expect_within(at::ones({4}), value, bound, "x"), "x");
}

TEST(ExpectSameBits, SeesOneBitAndAnotherType) {
  static const Tensor x = at::ones({3});
  EXPECT_NONFATAL_FAILURE(expect_same_bits(x * (1 + 0x1p-23), x, "x"), "x differs");
  EXPECT_FATAL_FAILURE(expect_same_bits(x.to(at::kBFloat16), x, "x"), "x");
}

}  // namespace
}  // namespace athanor::ops::error_bound_test
