#include "ops/swiglu.h"

#include "ops/testing/op_testing.h"

namespace athanor::ops::swiglu_test {
namespace {

using namespace test;

struct Reference {
  Tracked out, dgate, dup;
};

Reference reference(const Tensor& gate, const Tensor& up, const Tensor& dout, at::ScalarType dtype) {
  const Tracked g = exact(gate), u = exact(up), d = exact(dout), s = sigmoid(g), one = exact(1.0);
  return {stored(g * s * u, dtype), stored(d * u * (s + g * s * (one - s)), dtype), stored(d * (g * s), dtype)};
}

TEST(Swiglu, ForwardAndBothGradientsAreWithinTheirBounds) {
  for (const auto dtype : kComputeTypes) {
    for (const int64_t n : {0, 1, 2, 15, 16, 17, 31, 33, 1000, 40000}) {
      const Tensor gate = normal({n}, 1, dtype) * 5, up = normal({n}, 2, dtype), dout = normal({n}, 3, dtype);
      const Outcome fast = run([](const auto& in) { return swiglu(in[0], in[1]); }, {gate, up}, dout);
      const auto [out, dgate, dup] = reference(gate, up, dout, dtype);
      const auto name = fmt::format("{} of {}", n, name_of(dtype));
      expect_within(fast.y, out, name + " y");
      expect_within(fast.dx[0], dgate, name + " dgate");
      expect_within(fast.dx[1], dup, name + " dup");
      expect_within(portable::swiglu(gate, up), out, name + " portable y");

      const Outcome oracle = run_fp64([](const auto& in) { return portable::swiglu(in[0], in[1]); }, {gate, up}, dout);
      const auto formula = reference(gate, up, dout, at::kFloat);
      expect_same_formula(oracle.y, formula.out, name + " y");
      expect_same_formula(oracle.dx[0], formula.dgate, name + " dgate");
      expect_same_formula(oracle.dx[1], formula.dup, name + " dup");
    }
  }
}

TEST(Swiglu, IsFiniteForGatesOfAnySize) {
  const Tensor gate = at::tensor({-3e38f, -200.0f, -87.3f, -0.0f, 0.0f, 87.3f, 200.0f, 1e30f});
  const Tensor ones = at::ones_like(gate);
  const Outcome fast = run([](const auto& in) { return swiglu(in[0], in[1]); }, {gate, ones}, ones);
  const auto [out, dgate, dup] = reference(gate, ones, ones, at::kFloat);
  expect_within(fast.y, out, "y");
  expect_within(fast.dx[0], dgate, "dgate");
  EXPECT_TRUE(fast.dx[0].isfinite().all().item<bool>());
}

TEST(Swiglu, TakesHalvesOfOneTensor) {
  const Tensor both = normal({6, 10}, 1);
  const auto halves = both.chunk(2, -1);
  expect_same_bits(swiglu(halves[0], halves[1]), swiglu(halves[0].contiguous(), halves[1].contiguous()), "y");
}

TEST(Swiglu, BackwardMayOverwriteItsArguments) {
  const Tensor gate = normal({40}, 1), up = normal({40}, 2), dout = normal({40}, 3);
  const Tensor dgate = at::empty_like(gate), dup = at::empty_like(up);
  swiglu_backward_into(dout, gate, up, dgate, dup);
  const Tensor over_gate = gate.clone(), over_up = up.clone();
  swiglu_backward_into(dout, over_gate, over_up, over_gate, over_up);
  expect_same_bits(over_gate, dgate, "dgate");
  expect_same_bits(over_up, dup, "dup");
}

TEST(Swiglu, DoesNotDependOnThreadsOrOnWhereAnElementStands) {
  const Tensor gate = normal({70001}, 1), up = normal({70001}, 2), dout = normal({70001}, 3);
  const auto with = [&](int threads, int64_t skip) {
    const Threads some(threads);
    const auto tail = [&](const Tensor& x) { return x.narrow(0, skip, 70001 - skip); };
    return run([](const auto& in) { return swiglu(in[0], in[1]); }, {tail(gate), tail(up)}, tail(dout));
  };
  const Outcome one = with(1, 0), two = with(2, 0), shifted = with(1, 5);
  expect_same_bits(one.y, two.y, "y");
  expect_same_bits(one.dx[0], two.dx[0], "dgate");
  expect_same_bits(one.y.narrow(0, 5, 69996), shifted.y, "y from the fifth on");
  expect_same_bits(one.dx[0].narrow(0, 5, 69996), shifted.dx[0], "dgate from the fifth on");
}

TEST(Swiglu, RefusesTwoTypes) {
  const at::NoGradGuard no_grad;
  EXPECT_THROW(swiglu(normal({4}, 1, at::kBFloat16), normal({4}, 2)), Error);
}

}  // namespace
}  // namespace athanor::ops::swiglu_test
