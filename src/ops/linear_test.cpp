#include "ops/linear.h"

#include "ops/testing/on_path.h"
#include "ops/testing/op_testing.h"
#include "ops/tiles.h"

namespace athanor::ops::linear_test {
namespace {

using namespace test;

struct Shape {
  int64_t tokens, in, out;
};

std::string name_of(const Shape& s, at::ScalarType dtype) {
  return fmt::format("{} tokens, {} to {}, {}", s.tokens, s.in, s.out, test::name_of(dtype));
}

std::vector<Shape> shapes() {
  std::vector<Shape> all = {{0, 5, 3}, {3, 64, 1}, {33, 100, 50}, {64, 128, 96}, {130, 257, 31}};
  for (int64_t width = 1; width <= 17; ++width) all.push_back({1 + width % 3, width, 18 - width});
  return all;
}

TEST(Linear, ForwardAndBothGradientsAreWithinTheirBounds) {
  for (const auto dtype : kComputeTypes) {
    for (const Shape& s : shapes()) {
      const auto name = name_of(s, dtype);
      const Tensor x = normal({s.tokens, s.in}, 1, dtype), dy = normal({s.tokens, s.out}, 2, dtype);
      const Weight weight = weight_of(normal({s.out, s.in}, 3, dtype), 0.5);
      const Outcome fast = run([&](const auto& in) { return linear(in[0], weight); }, {x}, dy);

      const Tracked ex = exact(x), edy = exact(dy), ew = exact(weight.value);
      const auto transpose = [](const Tracked& a) { return a.view([](const Tensor& t) { return t.t(); }); };
      expect_within(fast.y, stored(matmul(ex, transpose(ew)), dtype), name + " y");
      expect_within(fast.dx[0], stored(matmul(edy, ew), dtype), name + " dx");
      expect_within(weight.grad, added_to(0.5, stored(matmul(transpose(edy), ex), dtype), s.tokens), name + " dw");
    }
  }
}

TEST(Linear, TakesAnyLeadingDimsAndAnyStrides) {
  const Tensor x = normal({3, 8, 4}, 1).transpose(1, 2), dy = normal({3, 6, 4}, 2).transpose(1, 2);
  const Weight weight = weight_of(normal({6, 8}, 3)), flat = weight_of(weight.value);
  const Outcome fast =
      run([&](const auto& in) { return linear(in[0].transpose(1, 2).contiguous().transpose(1, 2), weight); }, {x}, dy);
  const Outcome same =
      run([&](const auto& in) { return linear(in[0], flat); }, {x.reshape({12, 8})}, dy.reshape({12, 6}));
  EXPECT_EQ(fast.y.sizes(), (at::IntArrayRef{3, 4, 6}));
  expect_same_bits(fast.dx[0].reshape({12, 8}), same.dx[0], "dx");
  expect_same_bits(weight.grad, flat.grad, "dw");
}

TEST(Linear, GradientsOfTwoCallsAddUpInTheBucket) {
  for (const auto dtype : kComputeTypes) {
    const Tensor x = normal({9, 12}, 1, dtype), dy = normal({9, 7}, 2, dtype);
    const Weight once = weight_of(normal({7, 12}, 3, dtype)), twice = weight_of(once.value);
    run([&](const auto& in) { return linear(in[0], once); }, {x}, dy);
    for (int call = 0; call < 2; ++call) run([&](const auto& in) { return linear(in[0], twice); }, {x}, dy);
    const Tracked product = added_to(0, stored(matmul(exact(dy.t()), exact(x)), dtype), 9);
    expect_within(once.grad, product, "once " + test::name_of(dtype));
    expect_within(twice.grad, product + product, "twice " + test::name_of(dtype));
  }
}

TEST(Linear, TwoRunsOnTwoThreadsGiveTheSameBits) {
  const Threads two(2);
  for (const auto dtype : kComputeTypes) {
    const Tensor x = normal({130, 96}, 1, dtype), dy = normal({130, 70}, 2, dtype), value = normal({70, 96}, 3, dtype);
    const Weight a = weight_of(value), b = weight_of(value);
    const Outcome first = run([&](const auto& in) { return linear(in[0], a); }, {x}, dy);
    const Outcome second = run([&](const auto& in) { return linear(in[0], b); }, {x}, dy);
    expect_same_bits(first.y, second.y, "y");
    expect_same_bits(first.dx[0], second.dx[0], "dx");
    expect_same_bits(a.grad, b.grad, "dw");
  }
}

TEST(Linear, WithoutABucketHasTheBitsOfForwardWithOneOnTilesAndElseOfTheLibrary) {
  const at::NoGradGuard no_grad;
  for (const auto dtype : kComputeTypes) {
    const Tensor x = normal({4, 5}, 1, dtype), w = normal({3, 5}, 2, dtype);
    const Tensor expected = multiplies_on_tiles(x) ? linear(x, weight_of(w)) : at::linear(x, w);
    expect_same_bits(linear(x, {w, Tensor()}), expected, test::name_of(dtype));
  }
}

// 1 to 12 rows are one block of a tile, whose panels are packed a few k at a time; 5 and 333 are no multiples of that.
TEST(Linear, OnTilesNoBitsOfARowDependOnTheNumberOfRows) {
  const at::NoGradGuard no_grad;
  for (const MatmulPath path : tile_paths()) {
    const OnPath on_path(path);
    for (const auto dtype : kComputeTypes) {
      for (const int64_t width : {5, 64, 333, 2500}) {
        const Tensor x = normal({150, width}, 1, dtype), w = normal({70, width}, 2, dtype);
        const Tensor y = linear(x, {w, Tensor()});
        for (const int64_t rows : {1, 2, 12, 13, 31, 40}) {
          expect_same_bits(linear(x.narrow(0, 0, rows), {w, Tensor()}), y.narrow(0, 0, rows).contiguous(),
                           fmt::format("{} rows of {} in {}", rows, width, test::name_of(dtype)));
        }
      }
    }
  }
}

TEST(AddOuterProduct, OfNoRowsLeavesTheBucketAlone) {
  for (const auto dtype : kComputeTypes) {
    const Tensor grad = at::full({3, 4}, 0.25);
    add_outer_product(grad, at::empty({0, 3}, dtype), at::empty({0, 4}, dtype));
    expect_same_bits(grad, at::full({3, 4}, 0.25), test::name_of(dtype));
  }
}

TEST(AddOuterProduct, OfAWideVocabularyAddsEveryBlockOnce) {
  // Whole numbers whose products and sums bf16 represents exactly. 3,001 x 2,803 is more than one block, and not a
  // multiple of one.
  const auto digits = [](at::IntArrayRef shape, uint64_t seed) {
    return at::randint(-6, 7, shape, at::detail::createCPUGenerator(seed), at::kFloat);
  };
  const Tensor a = digits({3, 3001}, 1), b = digits({3, 2803}, 2), grad = at::full({3001, 2803}, 0.5);
  add_outer_product(grad, a.to(at::kBFloat16), b.to(at::kBFloat16));
  expect_same_bits(grad, at::mm(a.t(), b) + 0.5, "grad");
}

TEST(AddOuterProduct, DoesNotLoseSmallTermsToALargeSum) {
  // Each product is rounded to bf16 once; the sum is fp32. In a bf16 sum, 256 + 0.5 would stay 256.
  const Tensor grad = at::zeros({1, 1});
  add_outer_product(grad, at::full({1, 1}, 256, at::kBFloat16), at::ones({1, 1}, at::kBFloat16));
  for (int i = 0; i < 4; ++i)
    add_outer_product(grad, at::full({1, 1}, 0.5, at::kBFloat16), at::ones({1, 1}, at::kBFloat16));
  EXPECT_EQ(grad.item<float>(), 258.0f);
}

}  // namespace
}  // namespace athanor::ops::linear_test
