#include "ops/soft_cap.h"

#include <cmath>

#include "kernels/soft_cap.h"
#include "ops/testing/op_testing.h"

namespace athanor::ops::soft_cap_test {
namespace {

using namespace test;

TEST(SoftCap, ValueAndGradientAreWithinTheirBoundsForSmallAndLargeNumbers) {
  for (const auto dtype : kComputeTypes) {
    for (const double cap : {0.5, 30.0}) {
      for (const double size : {1e-6, 0.3, 5.0, 1e4}) {
        const Tensor x = normal({2003}, 1, dtype) * size, dy = normal({2003}, 2, dtype);
        const Tracked y = stored(test::soft_cap(exact(x), cap), dtype),
                      share = test::soft_cap(exact(x), cap) * (1 / cap),
                      dx = stored(exact(dy) * (exact(1.0) - share * share), dtype);
        const auto name = fmt::format("{} of {} under {}", name_of(dtype), size, cap);
        expect_within(soft_cap(x, cap), y, name);
        expect_within(portable::soft_cap(x, cap), y, name + " portable");
        const Tensor gradient = dy.clone(), plain = dy.clone();
        soft_cap_gradient_(gradient, x, cap);
        portable::soft_cap_gradient_(plain, x, cap);
        expect_within(gradient, dx, name + " gradient");
        expect_within(plain, dx, name + " portable gradient");
      }
    }
  }
}

TEST(SoftCap, OfZeroIsNone) {
  const Tensor x = normal({7}, 1), dy = normal({7}, 2), kept = dy.clone();
  EXPECT_TRUE(soft_cap(x, 0).is_same(x));
  soft_cap_gradient_(dy, x, 0);
  expect_same_bits(dy, kept, "gradient");
}

TEST(SoftCap, TanhIsRightToFiveUnitsEverywhereAndOddAndEndsAtOne) {
  double worst = 0;
  for (double x = 1e-30; x < 100; x *= 1.0003) {
    const auto number = static_cast<float>(x);
    const double exact = std::tanh(static_cast<double>(number)), own = kernels::tanh_fast(number);
    worst = std::max(worst, std::abs(own - exact) / exact * 0x1p24);
    ASSERT_EQ(kernels::tanh_fast(-number), -kernels::tanh_fast(number));
  }
  EXPECT_LE(worst, 5);
  EXPECT_EQ(kernels::tanh_fast(1e30f), 1);
  EXPECT_EQ(kernels::tanh_fast(0.0f), 0);
}

}  // namespace
}  // namespace athanor::ops::soft_cap_test
