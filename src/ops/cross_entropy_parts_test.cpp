#include "ops/cross_entropy_parts.h"

#include <limits>

#include "kernels/cross_entropy.h"
#include "ops/testing/op_testing.h"

namespace athanor::ops::cross_entropy_parts_test {
namespace {

using test::kComputeTypes;
using test::name_of;
using test::normal;

// Rows with targets before, in and after the part, and without a target; whole vectors and a tail.
constexpr int64_t kRows = 6, kFirst = 100;
LogitsPart part_of(int64_t width, at::ScalarType dtype) {
  const Tensor targets =
      at::tensor({kFirst, int64_t{3}, kFirst + width, kernels::kNoTarget, kFirst + width - 1, kFirst});
  Tensor logits = normal({kRows, width}, 1, dtype) * 4;
  if (width > 1) logits[4][0] = logits[4][width - 1] = 20;  // an id below the target's reaches the maximum, too
  return {logits, targets, kFirst};
}

struct Parts {
  Tensor maxima = at::empty({kRows}), sums = at::empty({kRows}), at_target = at::empty({kRows}),
         earlier = at::empty({kRows});
};

TEST(CrossEntropyParts, AreWhatTheirPortableFormsGive) {
  for (const auto dtype : kComputeTypes) {
    for (const int64_t width : {int64_t{0}, int64_t{1}, int64_t{5}, int64_t{16}, int64_t{103}}) {
      const std::string what = name_of(dtype) + " " + std::to_string(width);
      const LogitsPart part = part_of(width, dtype);
      LogitsPart plain = part;
      plain.logits = part.logits.clone();
      const Parts fast, slow;
      row_maxima_into(part, fast.maxima);
      portable::row_maxima_into(plain, slow.maxima);
      test::expect_same_bits(fast.maxima, slow.maxima, what);
      EXPECT_EQ(fast.maxima[3].item<float>(), -std::numeric_limits<float>::infinity());

      // Other ranks have logits as large or larger.
      const Tensor maxima = at::where(part.has_target(), fast.maxima.clamp_min(1), fast.maxima);
      exp_sums_into(part, maxima, fast.sums, fast.at_target, fast.earlier);
      portable::exp_sums_into(plain, maxima, slow.sums, slow.at_target, slow.earlier);
      test::expect_same_bits(fast.at_target, slow.at_target, what + " target");
      test::expect_same_bits(fast.earlier, slow.earlier, what + " earlier");
      // The sum of exponentials of 2 ULP each.
      const Tensor bound = error_bound(slow.sums, at::kFloat, width + 8);
      test::expect_within(fast.sums, slow.sums.to(at::kDouble), bound, what + " sums");

      to_softmax_gradient(part, maxima, slow.sums + 1, 0.5);
      portable::to_softmax_gradient(plain, maxima, slow.sums + 1, 0.5);
      const Tensor expected = plain.logits.to(at::kDouble), largest = expected.abs() + 0.5 * 0x1p-24;
      test::expect_within(part.logits, expected, error_bound(largest, dtype, 16) * 2, what + " gradient");
    }
  }
}

TEST(CrossEntropyParts, OfOnePartAreTheWholeLoss) {
  for (const auto dtype : kComputeTypes) {
    const int64_t width = 103;
    const Tensor logits = normal({kRows, width}, 2, dtype) * 4, whole = logits.clone();
    const Tensor targets = at::tensor({int64_t{0}, int64_t{3}, width - 1, kernels::kNoTarget, int64_t{50}, int64_t{7}});
    const LogitsPart part{logits, targets, 0};
    const Parts parts;
    row_maxima_into(part, parts.maxima);
    exp_sums_into(part, parts.maxima, parts.sums, parts.at_target, {});
    to_softmax_gradient(part, parts.maxima, parts.sums, 0.25);
    Tensor losses = at::empty({kRows});
    with_element(whole, [&](auto* tag) {
      using T = std::decay_t<decltype(*tag)>;
      kernels::cross_entropy(pointer<T>(whole), targets.const_data_ptr<int64_t>(), pointer<float>(losses), nullptr,
                             kRows, width, 0.25f);
    });
    const Tensor gradient = whole.to(at::kDouble), largest = gradient.abs() + 0.25 * 0x1p-24;
    test::expect_within(part.logits, gradient, error_bound(largest, dtype, 2 * width), name_of(dtype));
    const Tensor sum = at::where(part.has_target(), (parts.maxima - parts.at_target) + parts.sums.log(), 0.0f);
    test::expect_within(sum, losses.to(at::kDouble), error_bound(losses.abs() + 1, at::kFloat, 4), name_of(dtype));
  }
}

}  // namespace
}  // namespace athanor::ops::cross_entropy_parts_test
