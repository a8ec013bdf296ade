#include "ops/norm.h"

#include "ops/testing/op_testing.h"

namespace athanor::ops::norm_test {
namespace {

using namespace test;

constexpr double kEps = 1e-5;

Tracked mean(const Tracked& x) { return sum(x, -1, /*keepdim=*/true) * (1 / static_cast<double>(x.value.size(-1))); }

struct Reference {
  Tracked y, dx, dw;
};

// dx = r · (g − x̂ · mean(g · x̂)), g = dy · w, x̂ = x · r.
Reference rms_reference(const Tensor& x_in, const Tensor& w_in, const Tensor& dy_in, at::ScalarType dtype,
                        double offset = 0) {
  const Tracked x = exact(x_in), w = exact(w_in) + exact(offset), dy = exact(dy_in);
  const Tracked r = rsqrt(mean(x * x) + rounded(exact(kEps)));
  const Tracked normed = x * r, g = dy * w;
  return {stored(normed * w, dtype), stored(r * (g - normed * mean(g * normed)), dtype), sum(dy * normed, 0)};
}

// dx = r · (dy − mean(dy) − x̂ · mean(dy · x̂)), x̂ = (x − mean) · r.
Reference layer_reference(const Tensor& x_in, const Tensor& dy_in, at::ScalarType dtype) {
  const Tracked x = exact(x_in), dy = exact(dy_in), centred = x - mean(x);
  const Tracked r = rsqrt(mean(centred * centred) + rounded(exact(kEps)));
  const Tracked normed = centred * r;
  return {stored(normed, dtype), stored(r * (dy - mean(dy) - normed * mean(dy * normed)), dtype), exact(0.0)};
}

std::vector<std::pair<int64_t, int64_t>> shapes() {
  std::vector<std::pair<int64_t, int64_t>> all = {{0, 8}, {64, 32}, {65, 33}, {200, 50}, {2, 1000}, {3, 4096}};
  for (int64_t width = 1; width <= 17; ++width) all.emplace_back(1 + width % 3, width);
  return all;
}

TEST(RmsNorm, ForwardAndBothGradientsAreWithinTheirBoundsAlsoWithAnOffsetOfTheWeight) {
  for (const auto dtype : kComputeTypes) {
    for (const auto& [rows, width] : shapes()) {
      const RmsForm form{kEps, width % 2 == 0 ? 0.0 : 1.0};
      const Tensor x = normal({rows, width}, 1, dtype) * 3, dy = normal({rows, width}, 2, dtype);
      const Weight weight = weight_of(normal({width}, 3, dtype), 0.5);
      const Outcome fast = run([&](const auto& in) { return rms_norm(in[0], weight, form); }, {x}, dy);
      const auto [y, dx, dw] = rms_reference(x, weight.value, dy, dtype, form.offset);
      const auto name = fmt::format("{} rows of {} {}", rows, width, name_of(dtype));
      expect_within(fast.y, y, name + " y");
      expect_within(fast.dx[0], dx, name + " dx");
      expect_within(weight.grad, added_to(0.5, dw, rows), name + " dw");
      expect_within(portable::rms_norm(x, weight.value, form), y, name + " portable y");

      const Outcome oracle =
          run_fp64([&](const auto& in) { return portable::rms_norm(in[0], in[1], form); }, {x, weight.value}, dy);
      const auto formula = rms_reference(x, weight.value, dy, at::kFloat, form.offset);
      expect_same_formula(oracle.y, formula.y, name + " y");
      expect_same_formula(oracle.dx[0], formula.dx, name + " dx");
      expect_same_formula(oracle.dx[1], formula.dw, name + " dw");
    }
  }
}

TEST(LayerNorm, ForwardAndGradientAreWithinTheirBounds) {
  for (const auto dtype : kComputeTypes) {
    for (const auto& [rows, width] : shapes()) {
      const Tensor x = normal({rows, width}, 1, dtype) + 0.5, dy = normal({rows, width}, 2, dtype);
      const Outcome fast = run([&](const auto& in) { return layer_norm(in[0], kEps); }, {x}, dy);
      const Reference expected = layer_reference(x, dy, dtype);
      const auto name = fmt::format("{} rows of {} {}", rows, width, name_of(dtype));
      expect_within(fast.y, expected.y, name + " y");
      expect_within(fast.dx[0], expected.dx, name + " dx");
      expect_within(portable::layer_norm(x, kEps), expected.y, name + " portable y");

      const Outcome oracle = run_fp64([](const auto& in) { return portable::layer_norm(in[0], kEps); }, {x}, dy);
      const auto formula = layer_reference(x, dy, at::kFloat);
      expect_same_formula(oracle.y, formula.y, name + " y");
      expect_same_formula(oracle.dx[0], formula.dx, name + " dx");
    }
  }
}

TEST(RmsNorm, ARowOfZerosStaysZeroWithFiniteGradients) {
  const Weight weight = weight_of(at::ones({20}));
  const Outcome fast =
      run([&](const auto& in) { return rms_norm(in[0], weight, kEps); }, {at::zeros({2, 20})}, at::ones({2, 20}));
  EXPECT_EQ(fast.y.abs().max().item<float>(), 0.0f);
  EXPECT_EQ(weight.grad.abs().max().item<float>(), 0.0f);
  const auto expected = rms_reference(at::zeros({2, 20}), weight.value, at::ones({2, 20}), at::kFloat);
  expect_within(fast.dx[0], expected.dx, "dx");
}

TEST(RmsNorm, GradientsOfTwoCallsAddUpInTheBucket) {
  const Tensor x = normal({70, 24}, 1), dy = normal({70, 24}, 2);
  const Weight once = weight_of(normal({24}, 3)), twice = weight_of(once.value);
  run([&](const auto& in) { return rms_norm(in[0], once, kEps); }, {x}, dy);
  for (int call = 0; call < 2; ++call) run([&](const auto& in) { return rms_norm(in[0], twice, kEps); }, {x}, dy);
  const Tracked dw = rms_reference(x, once.value, dy, at::kFloat).dw;
  expect_within(once.grad, dw + exact(0.0), "once");
  expect_within(twice.grad, dw + dw, "twice");
}

// Rows, their gradients and the weight's gradient have the same bits.
template <class F>
void expect_independent_of_threads(F f, const Weight& weight) {
  const Tensor x = normal({2, 301, 96}, 1, at::kBFloat16), dy = normal(x.sizes(), 2, at::kBFloat16);
  const auto with = [&](int threads) {
    const Threads some(threads);
    if (weight.defined()) weight.grad.zero_();
    Outcome result = run(f, {x}, dy);
    if (weight.defined()) result.dx.push_back(weight.grad.clone());
    return result;
  };
  const Outcome one = with(1);
  for (const int threads : {1, 2, 3}) {
    const Outcome again = with(threads);
    expect_same_bits(again.y, one.y, "y");
    for (size_t i = 0; i < one.dx.size(); ++i) expect_same_bits(again.dx[i], one.dx[i], fmt::format("gradient {}", i));
  }
}

TEST(RmsNorm, DoesNotDependOnThreads) {
  const Weight weight = weight_of(normal({96}, 3, at::kBFloat16));
  expect_independent_of_threads([&](const auto& in) { return rms_norm(in[0], weight, kEps); }, weight);
}

TEST(LayerNorm, DoesNotDependOnThreads) {
  expect_independent_of_threads([](const auto& in) { return layer_norm(in[0], kEps); }, {});
}

TEST(RmsNorm, ARowDoesNotDependOnTheRowsBesideIt) {
  const at::NoGradGuard no_grad;
  const Tensor x = normal({9, 37}, 1);
  const Weight weight = weight_of(normal({37}, 2));
  const Tensor all = rms_norm(x, weight, kEps);
  for (int64_t row = 0; row < 9; ++row) expect_same_bits(rms_norm(x[row], weight, kEps), all[row], "row");
}

TEST(RmsNorm, TakesAnyStridesAndRefusesAWeightOfAnotherType) {
  const Tensor x = normal({6, 4}, 1).t();
  const Weight weight = weight_of(normal({6}, 2));
  const at::NoGradGuard no_grad;
  expect_same_bits(rms_norm(x, weight, kEps), rms_norm(x.contiguous(), weight, kEps), "y");
  expect_same_bits(layer_norm(x, kEps), layer_norm(x.contiguous(), kEps), "y");
  EXPECT_THROW(rms_norm(x.to(at::kBFloat16), weight, kEps), Error);
}

}  // namespace
}  // namespace athanor::ops::norm_test
