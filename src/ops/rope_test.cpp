#include "ops/rope.h"

#include "ops/testing/op_testing.h"

namespace athanor::ops::rope_test {
namespace {

using namespace test;

constexpr double kTheta = 10000;

Rotation rotation_of(int64_t batch, int64_t tokens, int64_t head_dim) {
  return make_rotation(at::arange(tokens, at::kLong).expand({batch, tokens}), inverse_frequency(head_dim, kTheta));
}

// The pair (a, b) rotated by an angle, or back.
Tracked turned(const Tensor& x, const Rotation& rotation, double direction, at::ScalarType dtype) {
  const auto halves = x.chunk(2, -1);
  const Tracked a = exact(halves[0]), b = exact(halves[1]);
  const Tracked cos = exact(rotation.cos.unsqueeze(-2)), sin = exact(rotation.sin.unsqueeze(-2) * direction);
  const Tracked first = stored(a * cos - b * sin, dtype), second = stored(b * cos + a * sin, dtype);
  return {at::cat({first.value, second.value}, -1), at::cat({first.error, second.error}, -1)};
}

TEST(Rope, ForwardAndGradientAreWithinTheirBounds) {
  for (const auto dtype : kComputeTypes) {
    for (const int64_t head_dim : {2, 4, 6, 34, 64, 128}) {
      for (const int64_t heads : {1, 3}) {
        const Tensor x = normal({2, 5, heads, head_dim}, 1, dtype), dy = normal(x.sizes(), 2, dtype);
        const Rotation rotation = rotation_of(2, 5, head_dim);
        const Outcome fast = run([&](const auto& in) { return rope(in[0], rotation); }, {x}, dy);
        const Outcome oracle = run_fp64([&](const auto& in) { return portable::rope(in[0], rotation); }, {x}, dy);
        const auto name = fmt::format("{} heads of {} {}", heads, head_dim, name_of(dtype));
        expect_within(fast.y, turned(x, rotation, 1, dtype), name + " y");
        expect_within(fast.dx[0], turned(dy, rotation, -1, dtype), name + " dx");
        expect_within(portable::rope(x, rotation), turned(x, rotation, 1, dtype), name + " portable y");
        expect_same_formula(oracle.y, turned(x, rotation, 1, at::kFloat), name + " y");
        expect_same_formula(oracle.dx[0], turned(dy, rotation, -1, at::kFloat), name + " dx");
      }
    }
  }
}

TEST(Rope, TakesNoTokensAndAnyStrides) {
  EXPECT_EQ(rope(at::empty({2, 0, 3, 8}), rotation_of(2, 0, 8)).sizes(), (at::IntArrayRef{2, 0, 3, 8}));
  const Rotation rotation = rotation_of(2, 5, 8);
  const Tensor x = normal({2, 3, 5, 8}, 1).transpose(1, 2);
  expect_same_bits(rope(x, rotation), rope(x.contiguous(), rotation), "a transposed argument");
}

TEST(Rope, PositionZeroChangesNothing) {
  const Tensor x = normal({1, 1, 4, 16}, 1);
  expect_same_bits(rope(x, rotation_of(1, 1, 16)), x, "y");
}

TEST(Rope, ScoresDependOnTheDistanceOfPositionsOnly) {
  const Tensor q = normal({1, 1, 64}, 1), k = normal({1, 1, 64}, 2);
  const auto score = [&](int64_t i, int64_t j) {
    const auto at_position = [](const Tensor& x, int64_t p) {
      return rope(x, make_rotation(at::full({1}, p, at::kLong), inverse_frequency(64, kTheta)));
    };
    return (at_position(q, i).to(at::kDouble) * at_position(k, j).to(at::kDouble)).sum().item<double>();
  };
  // An angle of up to 100 radians is rounded to fp32 (the fastest pair turns one radian for each position), as are its
  // cosine and sine: 100 u in each direction for both tokens, and three roundings of each product.
  const double norm = q.norm().item<double>() * k.norm().item<double>();
  EXPECT_LE(std::abs(score(40, 33) - score(100, 93)), error_bound(norm, at::kFloat, 4 * (100 + 3)));
  EXPECT_GT(std::abs(score(40, 33) - score(40, 34)), 1e-3 * norm);
}

TEST(Rope, AnglesFallFromOneRadianByPowersOfTheta) {
  const Rotation r = make_rotation(at::full({1}, 3, at::kLong), inverse_frequency(8, kTheta));
  for (int64_t i = 0; i < 4; ++i) {
    const double angle = 3 * std::pow(kTheta, -2.0 * static_cast<double>(i) / 8);
    // Power, reciprocal and product are rounded; libm's power and cosine are within one ULP (two roundings).
    EXPECT_LE(std::abs(r.cos[0][i].item<double>() - std::cos(angle)), error_bound(1 + angle, at::kFloat, 6)) << i;
    EXPECT_LE(std::abs(r.sin[0][i].item<double>() - std::sin(angle)), error_bound(1 + angle, at::kFloat, 6)) << i;
  }
}

TEST(Rope, DoesNotDependOnThreads) {
  const Tensor x = normal({2, 300, 4, 64}, 1, at::kBFloat16), dy = normal(x.sizes(), 2, at::kBFloat16);
  const Rotation rotation = rotation_of(2, 300, 64);
  const auto with = [&](int threads) {
    const Threads some(threads);
    return run([&](const auto& in) { return rope(in[0], rotation); }, {x}, dy);
  };
  const Outcome one = with(1), two = with(2);
  expect_same_bits(one.y, two.y, "y");
  expect_same_bits(one.dx[0], two.dx[0], "dx");
}

TEST(Rope, RefusesATableOfAnotherLength) {
  EXPECT_THROW(rope(normal({1, 4, 2, 8}, 1), rotation_of(1, 3, 8)), Error);
  EXPECT_THROW(rope(normal({1, 4, 2, 8}, 1), rotation_of(1, 4, 6)), Error);
}

}  // namespace
}  // namespace athanor::ops::rope_test
