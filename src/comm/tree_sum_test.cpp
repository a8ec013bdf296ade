#include "wire/tree_sum.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "comm/testing/collectives.h"
#include "wire/index_tree.h"

namespace athanor::comm::tree_sum_test {
namespace {

struct Kind {
  Element element;
  at::ScalarType type;
};
constexpr Kind kKinds[] = {{Element::kBf16, at::kBFloat16},
                           {Element::kF16, at::kHalf},
                           {Element::kF32, at::kFloat},
                           {Element::kF64, at::kDouble},
                           {Element::kI64, at::kLong}};

std::vector<const void*> pointers(const std::vector<Tensor>& terms) {
  std::vector<const void*> all;
  for (const Tensor& term : terms) all.push_back(term.const_data_ptr());
  return all;
}

std::vector<Tensor> draw_terms(int n, int64_t count, at::ScalarType type) {
  std::vector<Tensor> terms;
  for (int i = 0; i < n; ++i) terms.push_back(term_of(i, 7, count, type));
  return terms;
}

TEST(TreeSum, EqualsTheRecursiveDefinitionBitForBit) {
  for (const Kind& kind : kKinds) {
    for (int n = 1; n <= 33; ++n) {
      for (int64_t count : {1, 3, 511, 512, 1500}) {
        const std::vector<Tensor> terms = draw_terms(n, count, kind.type);
        Tensor out = at::empty({count}, kind.type);
        for (bool max : {false, true}) {
          tree_sum(kind.element, max ? Combine::kMax : Combine::kSum, {}, pointers(terms).data(), n, count,
                   out.data_ptr());
          EXPECT_TRUE(same_bits(out, tree_of(terms, max ? Reduction::kMax : Reduction::kSum)))
              << n << " terms of " << count << " " << c10::toString(kind.type) << (max ? " max" : " sum");
        }
      }
    }
  }
}

TEST(TreeSum, CutBetweenRanksHasTheSameBits) {
  for (const Kind& kind : kKinds) {
    for (int n : {2, 3, 5, 7, 8, 12}) {
      const int64_t count = 100, bytes = wide_bytes(kind.element) * count;
      const std::vector<Tensor> terms = draw_terms(n, count, kind.type);
      std::vector<std::vector<char>> wides;
      for (const Tensor& term : terms) {
        wides.emplace_back(static_cast<size_t>(bytes));
        widen(kind.element, 1, term.const_data_ptr(), count, wides.back().data());
      }
      for (int i = n - 1; i >= 0; --i) {  // children before parents
        for (int child : tree_children(i, n)) {
          EXPECT_EQ(tree_parent(child), i);
          add_wide(kind.element, Combine::kSum, wides[static_cast<size_t>(i)].data(),
                   wides[static_cast<size_t>(child)].data(), count);
        }
      }
      Tensor out = at::empty({count}, kind.type);
      narrow(kind.element, 1, wides[0].data(), count, out.data_ptr());
      EXPECT_TRUE(same_bits(out, tree_of(terms, Reduction::kSum))) << n << " " << c10::toString(kind.type);
    }
  }
}

TEST(TreeSum, TheResultMayLieOnATerm) {
  const std::vector<Tensor> terms = draw_terms(5, 1500, at::kFloat);
  const Tensor sum = tree_of(terms, Reduction::kSum);
  tree_sum(Element::kF32, Combine::kSum, {}, pointers(terms).data(), 5, 1500, terms[3].data_ptr());
  EXPECT_TRUE(same_bits(terms[3], sum));
}

TEST(TreeSum, AMaximumWithANaNIsNaN) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float a[] = {1, nan, 2, nan}, b[] = {nan, 1, 3, nan};
  const void* terms[] = {a, b};
  float out[4];
  tree_sum(Element::kF32, Combine::kMax, {}, terms, 2, 4, out);
  EXPECT_TRUE(std::isnan(out[0]) && std::isnan(out[1]) && std::isnan(out[3]));
  EXPECT_EQ(out[2], 3);
}

TEST(TreeSum, EveryHalfIsReadRight) {
  Tensor all = at::empty({65536}, at::kHalf);
  auto* bits = static_cast<uint16_t*>(all.data_ptr());
  for (int i = 0; i < 65536; ++i) bits[i] = static_cast<uint16_t>(i);
  Tensor ours = at::empty({65536}, at::kFloat);
  widen(Element::kF16, 1, all.const_data_ptr(), 65536, ours.data_ptr());
  const Tensor theirs = all.to(at::kFloat);
  for (int64_t i = 0; i < 65536; ++i) {
    const float x = ours.const_data_ptr<float>()[i], y = theirs.const_data_ptr<float>()[i];
    ASSERT_TRUE(std::bit_cast<uint32_t>(x) == std::bit_cast<uint32_t>(y) || (std::isnan(x) && std::isnan(y))) << i;
  }
}

TEST(TreeSum, HalvesAreRoundedToNearestEven) {
  std::vector<float> values;
  for (uint32_t i = 0; i < 65536; ++i) {  // each half, the midpoint to the next one, and the neighbours of that
                                          // midpoint
    if ((i & 0x7C00) == 0x7C00) continue;
    const float here = static_cast<float>(at::Half(static_cast<uint16_t>(i), at::Half::from_bits()));
    const float next = static_cast<float>(at::Half(static_cast<uint16_t>(i + 1), at::Half::from_bits()));
    const float middle = std::isinf(next) ? std::copysign(65520.0f, here) : (here + next) / 2;
    for (float x : {here, middle, std::nextafterf(middle, 0), std::nextafterf(middle, 2 * middle)}) values.push_back(x);
  }
  for (float x : {1e-9f, -1e-9f, 1e9f, -1e9f, std::numeric_limits<float>::infinity()}) values.push_back(x);
  const auto count = static_cast<int64_t>(values.size());
  Tensor ours = at::empty({count}, at::kHalf);
  narrow(Element::kF16, 1, values.data(), count, ours.data_ptr());
  const Tensor theirs = at::from_blob(values.data(), {count}, at::kFloat).to(at::kHalf);
  EXPECT_TRUE(same_bits(ours, theirs));
}

TEST(IndexTree, PartsDifferByOneAndCoverAll) {
  for (int n = 1; n <= 9; ++n) {
    for (int64_t count = 0; count < 30; ++count) {
      EXPECT_EQ(part_begin(count, n, 0), 0);
      EXPECT_EQ(part_begin(count, n, n), count);
      for (int i = 0; i < n; ++i) {
        const int64_t length = part_begin(count, n, i + 1) - part_begin(count, n, i);
        EXPECT_TRUE(length == count / n || length == count / n + 1);
      }
    }
  }
}

}  // namespace
}  // namespace athanor::comm::tree_sum_test
