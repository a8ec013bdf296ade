#include "ops/gelu.h"

#include "ops/testing/op_testing.h"

namespace athanor::ops::gelu_test {
namespace {

using namespace test;

struct Reference {
  Tracked y, dx;
};

// y = x · s with s = σ(2u), dx = dy · (s + x · s · (1 − s) · 2u').
Reference reference(const Tensor& x_in, const Tensor& dy_in, at::ScalarType dtype) {
  const Tracked x = exact(x_in), dy = exact(dy_in), one = exact(1.0);
  const double twice = 1.5957691216057308, cubic = 0.044715;
  const Tracked s = sigmoid((x + x * x * x * cubic) * twice), slope = (one + x * x * (3 * cubic)) * twice;
  return {stored(x * s, dtype), stored(dy * (s + x * s * (one - s) * slope), dtype)};
}

TEST(Gelu, ForwardAndGradientAreWithinTheirBounds) {
  for (const auto dtype : kComputeTypes) {
    for (const int64_t n : {0, 1, 2, 15, 16, 17, 31, 33, 1000, 40000}) {
      const Tensor x = normal({n}, 1, dtype) * 3, dy = normal({n}, 2, dtype);
      const Outcome fast = run([](const auto& in) { return gelu_tanh(in[0]); }, {x}, dy);
      const auto [y, dx] = reference(x, dy, dtype);
      const auto name = fmt::format("{} of {}", n, name_of(dtype));
      expect_within(fast.y, y, name + " y");
      expect_within(fast.dx[0], dx, name + " dx");
      const Outcome oracle = run_fp64([](const auto& in) { return portable::gelu_tanh(in[0]); }, {x}, dy);
      const auto formula = reference(x, dy, at::kFloat);
      expect_same_formula(oracle.y, formula.y, name + " y");
      expect_same_formula(oracle.dx[0], formula.dx, name + " dx");
    }
  }
}

TEST(Gelu, IsFiniteForNumbersOfAnySize) {
  const Tensor x = at::tensor({-3e38f, -200.0f, -20.0f, -0.0f, 0.0f, 20.0f, 200.0f, 3e38f}), ones = at::ones_like(x);
  const Outcome fast = run([](const auto& in) { return gelu_tanh(in[0]); }, {x}, ones);
  EXPECT_TRUE(at::equal(fast.y, at::relu(x)));
  EXPECT_TRUE(at::equal(fast.dx[0], at::tensor({0.0f, 0.0f, 0.0f, 0.5f, 0.5f, 1.0f, 1.0f, 1.0f})));
}

TEST(Gelu, NoBitsOfARowDependOnTheirPlace) {
  const Tensor x = normal({203}, 1), whole = gelu_tanh(x);
  for (int64_t i = 0; i < x.numel(); ++i)
    expect_same_bits(gelu_tanh(x.narrow(0, i, 1)), whole.narrow(0, i, 1), "one of many");
}

}  // namespace
}  // namespace athanor::ops::gelu_test
