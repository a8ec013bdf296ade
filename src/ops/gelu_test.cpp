#include "ops/gelu.h"
#include "ops/swiglu.h"

#include <array>
#include <cmath>

#include "ops/testing/op_testing.h"

namespace athanor::ops::gelu_test {
namespace {

using namespace test;

struct Reference {
  Tracked y, dx;
};

constexpr GeluForm kForms[] = {GeluForm::kTanh, GeluForm::kExact};

// y = x · Φ, dx = dy · (Φ + x · φ). In fp32 both begin with exp(−x²/2), whose exponent has two roundings, and is
// itself right to 2 ULP; 20 roundings follow, of which the polynomial has most. Above 0 Φ is 1 minus the tail.
Reference exact_reference(const Tensor& x_in, const Tensor& dy_in, at::ScalarType dtype) {
  const Tracked x = exact(x_in), dy = exact(dy_in);
  const Tensor wide = x_in.to(at::kDouble), square = wide.square(), units = (square + 24) * std::ldexp(1.0, -24);
  const Tensor tail = at::erfc(wide.abs() * std::sqrt(0.5)) / 2, density = (-square / 2).exp() * 0.3989422804014327;
  const Tracked normal{at::erfc(wide * -std::sqrt(0.5)) / 2, tail * units + wide.gt(0) * std::ldexp(1.0, -24)},
      slope{density, density * units};
  return {stored(x * normal, dtype), stored(dy * (normal + x * slope), dtype)};
}

// y = x · s with s = σ(2u), dx = dy · (s + x · s · (1 − s) · 2u').
Reference reference(GeluForm form, const Tensor& x_in, const Tensor& dy_in, at::ScalarType dtype) {
  if (form == GeluForm::kExact) return exact_reference(x_in, dy_in, dtype);
  const Tracked x = exact(x_in), dy = exact(dy_in), one = exact(1.0);
  const double twice = 1.5957691216057308, cubic = 0.044715;
  const Tracked s = sigmoid((x + x * x * x * cubic) * twice), slope = (one + x * x * (3 * cubic)) * twice;
  return {stored(x * s, dtype), stored(dy * (s + x * s * (one - s) * slope), dtype)};
}

TEST(Gelu, ForwardAndGradientAreWithinTheirBounds) {
  for (const GeluForm form : kForms) {
    for (const auto dtype : kComputeTypes) {
      for (const int64_t n : {0, 1, 2, 15, 16, 17, 31, 33, 1000, 40000}) {
        const Tensor x = normal({n}, 1, dtype) * 3, dy = normal({n}, 2, dtype);
        const Outcome fast = run([form](const auto& in) { return gelu(in[0], form); }, {x}, dy);
        const auto [y, dx] = reference(form, x, dy, dtype);
        const auto name = fmt::format("form {}, {} of {}", static_cast<int>(form), n, name_of(dtype));
        expect_within(fast.y, y, name + " y");
        expect_within(fast.dx[0], dx, name + " dx");
        const Outcome oracle = run_fp64([form](const auto& in) { return portable::gelu(in[0], form); }, {x}, dy);
        const auto formula = reference(form, x, dy, at::kFloat);
        expect_same_formula(oracle.y, formula.y, name + " y");
        expect_same_formula(oracle.dx[0], formula.dx, name + " dx");
      }
    }
  }
}

TEST(Geglu, ForwardAndBothGradientsAreWithinTheirBounds) {
  const auto bounds = [](const Tensor& gate, const Tensor& up, const Tensor& dout, at::ScalarType dtype) {
    const Tracked u = exact(up), d = exact(dout);
    const Reference plain = reference(GeluForm::kTanh, gate, at::ones_like(gate), at::kFloat);
    return std::array{stored(plain.y * u, dtype), stored(d * u * plain.dx, dtype), stored(d * plain.y, dtype)};
  };
  for (const auto dtype : kComputeTypes) {
    for (const int64_t n : {0, 1, 17, 1000, 40000}) {
      const Tensor gate = normal({n}, 1, dtype) * 3, up = normal({n}, 2, dtype), dout = normal({n}, 3, dtype);
      const Outcome fast = run([](const auto& in) { return geglu(in[0], in[1]); }, {gate, up}, dout);
      const auto [out, dgate, dup] = bounds(gate, up, dout, dtype);
      const auto name = fmt::format("{} of {}", n, name_of(dtype));
      expect_within(fast.y, out, name + " y");
      expect_within(fast.dx[0], dgate, name + " dgate");
      expect_within(fast.dx[1], dup, name + " dup");
      const Outcome oracle = run_fp64([](const auto& in) { return portable::geglu(in[0], in[1]); }, {gate, up}, dout);
      const auto formula = bounds(gate, up, dout, at::kFloat);
      expect_same_formula(oracle.y, formula[0], name + " y");
      expect_same_formula(oracle.dx[0], formula[1], name + " dgate");
      expect_same_formula(oracle.dx[1], formula[2], name + " dup");
    }
  }
}

TEST(Gelu, IsFiniteForNumbersOfAnySize) {
  const Tensor x = at::tensor({-3e38f, -200.0f, -20.0f, -0.0f, 0.0f, 20.0f, 200.0f, 3e38f}), ones = at::ones_like(x);
  for (const GeluForm form : kForms) {
    const Outcome fast = run([form](const auto& in) { return gelu(in[0], form); }, {x}, ones);
    EXPECT_TRUE(at::equal(fast.y, at::relu(x)));
    EXPECT_TRUE(at::allclose(fast.dx[0], at::tensor({0.0f, 0.0f, 0.0f, 0.5f, 0.5f, 1.0f, 1.0f, 1.0f}), 0, 1.2e-7));
  }
}

TEST(Gelu, NoBitsOfARowDependOnTheirPlace) {
  for (const GeluForm form : kForms) {
    const Tensor x = normal({203}, 1), whole = gelu(x, form);
    for (int64_t i = 0; i < x.numel(); ++i)
      expect_same_bits(gelu(x.narrow(0, i, 1), form), whole.narrow(0, i, 1), "one of many");
  }
}

}  // namespace
}  // namespace athanor::ops::gelu_test
