#include "ops/affine.h"

#include "ops/testing/op_testing.h"

namespace athanor::ops::affine_test {
namespace {

using namespace test;

const std::vector<std::pair<int64_t, int64_t>> kShapes = {{0, 8},   {1, 1},    {3, 17},  {64, 32},
                                                          {65, 33}, {200, 50}, {2, 3000}};

struct Case {
  Tensor x, dy;
  Weight scale, bias;

  Case(int64_t rows, int64_t width, at::ScalarType dtype, bool scales)
      : x(normal({rows, width}, 1, dtype) * 3), dy(normal({rows, width}, 2, dtype)),
        scale(scales ? weight_of(normal({width}, 3, dtype), 0.5) : Weight{}),
        bias(weight_of(normal({width}, 4, dtype), 0.25)) {}
};

TEST(Affine, ForwardAndAllGradientsAreWithinTheirBounds) {
  for (const bool scales : {true, false}) {
    for (const auto dtype : kComputeTypes) {
      for (const auto& [rows, width] : kShapes) {
        const Case c(rows, width, dtype, scales);
        const auto name = fmt::format("{} rows of {} {}{}", rows, width, name_of(dtype), scales ? ", scaled" : "");
        const Outcome fast = run([&](const auto& in) { return affine(in[0], c.scale, c.bias); }, {c.x}, c.dy);
        const Tracked x = exact(c.x), dy = exact(c.dy), b = exact(c.bias.value);
        const Tracked s = scales ? exact(c.scale.value) : exact(1.0);
        const Tracked y = stored(scales ? x * s + b : x + b, dtype);
        expect_within(fast.y, y, name + " y");
        expect_within(portable::affine(c.x, c.scale.value, c.bias.value), y, name + " portable y");
        expect_within(fast.dx[0], scales ? stored(dy * s, dtype) : dy, name + " dx");
        expect_within(c.bias.grad, added_to(0.25, sum(dy, 0), rows), name + " dbias");
        if (scales) expect_within(c.scale.grad, added_to(0.5, sum(dy * x, 0), rows), name + " dscale");
      }
    }
  }
}

TEST(Affine, DoesNotDependOnThreadsAndTakesAnyStrides) {
  const auto all = [](int threads, bool strided) {
    const Threads some(threads);
    Case c(300, 2500, at::kFloat, true);
    if (strided) c.x = c.x.t().contiguous().t(), c.dy = c.dy.t().contiguous().t();
    const Outcome of = run([&](const auto& in) { return affine(in[0], c.scale, c.bias); }, {c.x}, c.dy);
    return std::vector{of.y, of.dx[0], c.scale.grad, c.bias.grad};
  };
  const auto expected = all(1, false);
  for (const int threads : {1, 2, 5}) {
    const auto found = all(threads, threads == 2);
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(at::equal(found[i], expected[i])) << threads << " " << i;
  }
}

}  // namespace
}  // namespace athanor::ops::affine_test
