#include "ops/norm_halves.h"

#include "ops/norm.h"
#include "ops/testing/op_testing.h"

namespace athanor::ops::norm_halves_test {
namespace {

using test::kComputeTypes;
using test::name_of;
using test::normal;

// Rows for more than two partial sums of the weight's gradient; whole vectors and a tail; no rows at all.
TEST(NormHalves, OfWholeRowsAreTheNorm) {
  for (const auto dtype : kComputeTypes) {
    for (const int64_t rows : {int64_t{0}, int64_t{1}, int64_t{130}}) {
      for (const int64_t width : {int64_t{16}, int64_t{103}}) {
        const double offset = width % 2;
        const std::string what = name_of(dtype) + " " + std::to_string(rows) + " x " + std::to_string(width);
        const Tensor x = normal({rows, width}, 1, dtype), value = normal({width}, 2, dtype),
                     dy = normal({rows, width}, 3, dtype);
        const Weight one = test::weight_of(value, 0.5), halves = test::weight_of(value, 0.5);
        const auto expected = test::run([&](const auto& in) { return rms_norm(in[0], one, {1e-5, offset}); }, {x}, dy);
        const Tensor sums = at::empty({rows}), dots = at::empty({rows});
        square_sums_into(x, sums);
        const Tensor rstd = at::reciprocal(at::sqrt(sums / static_cast<double>(width) + 1e-5));
        test::expect_within(norm_scale(x, value, rstd, offset), expected.y.to(at::kDouble),
                            error_bound(expected.y.abs(), dtype, 4) * 2, what + " y");
        norm_dots_into(dy, x, value, rstd, dots, offset);
        const Tensor dx = norm_gradient(dy, x, halves, rstd, dots / static_cast<double>(width), offset);
        const Tensor largest =
            (dy.abs() * (value.abs() + offset) + x.abs() * 4 + 1).to(at::kDouble) * rstd.unsqueeze(1);
        test::expect_within(dx, expected.dx[0].to(at::kDouble), error_bound(largest, dtype, 2 * width), what + " dx");
        const Tensor dw = (dy.to(at::kDouble) * x.to(at::kDouble) * rstd.unsqueeze(1)).abs().sum(0) + 0.5;
        test::expect_within(halves.grad, one.grad.to(at::kDouble), error_bound(dw, at::kFloat, rows + 8), what + " dw");
      }
    }
  }
}

TEST(NormHalves, AreWhatTheirPortableFormsGive) {
  for (const auto dtype : kComputeTypes) {
    const int64_t rows = 70, width = 37;
    const Tensor x = normal({rows, width}, 1, dtype), value = normal({width}, 2, dtype),
                 dy = normal({rows, width}, 3, dtype), rstd = normal({rows}, 4).abs(), means = normal({rows}, 5);
    const Tensor fast = at::empty({rows}), slow = at::empty({rows});
    square_sums_into(x, fast);
    portable::square_sums_into(x, slow);
    test::expect_within(fast, slow.to(at::kDouble), error_bound(slow, at::kFloat, 2 * width), "squares");
    norm_dots_into(dy, x, value, rstd, fast, 1);
    portable::norm_dots_into(dy, x, value, rstd, slow, 1);
    const Tensor g = (dy.to(at::kDouble) * (value.to(at::kDouble) + 1)).abs(),
                 normed = x.to(at::kDouble).abs() * rstd.unsqueeze(1);
    test::expect_within(fast, slow.to(at::kDouble), error_bound((g * normed).sum(1), at::kFloat, 2 * width + 6),
                        "dots");
    const Tensor y = portable::norm_scale(x, value, rstd, 1);
    test::expect_within(norm_scale(x, value, rstd, 1), y.to(at::kDouble), error_bound(y.abs(), dtype, 4) * 2, "y");
    const Weight a = test::weight_of(value, 0.5), b = test::weight_of(value, 0.5);
    const Tensor dx = norm_gradient(dy, x, a, rstd, means, 1),
                 plain = portable::norm_gradient(dy, x, b, rstd, means, 1);
    const Tensor terms = (g + normed * means.abs().unsqueeze(1)) * rstd.unsqueeze(1);
    test::expect_within(dx, plain.to(at::kDouble), error_bound(terms, dtype, 8) * 2, "dx");
    test::expect_within(a.grad, b.grad.to(at::kDouble),
                        error_bound((dy.to(at::kDouble).abs() * normed).sum(0) + 0.5, at::kFloat, 2 * rows), "dw");
  }
}

}  // namespace
}  // namespace athanor::ops::norm_halves_test
