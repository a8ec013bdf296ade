#include "kernels/partial_sums.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

namespace athanor::kernels::partial_sums_test {
namespace {

// The definition: a rank without a term has zero.
float tree(const std::vector<float>& terms, size_t lo, size_t hi) {
  if (hi - lo == 1) return terms[lo];
  size_t half = 1;
  while (half * 2 < hi - lo) half *= 2;
  return tree(terms, lo, lo + half) + tree(terms, lo + half, hi);
}

template <class From, class To>
void expect_tree(int64_t n, double share_present, int64_t width) {
  constexpr int64_t kTokens = 40;
  std::mt19937 random(static_cast<uint32_t>(n * 1000 + width));
  std::uniform_real_distribution<double> uniform;
  std::normal_distribution<float> normal;
  std::vector<From> rows;
  std::vector<int32_t> row_of;
  for (int64_t i = 0; i < kTokens * n; ++i) {
    const bool present = uniform(random) < share_present;
    row_of.push_back(present ? static_cast<int32_t>(rows.size()) / static_cast<int32_t>(width) : -1);
    for (int64_t c = 0; present && c < width; ++c) {
      From value;
      store(value, uniform(random) < 0.3 ? -0.0f : normal(random));
      rows.push_back(value);
    }
  }
  std::vector<To> out(kTokens * width);
  sum_partials<From, To>(rows.data(), row_of.data(), n, out.data(), 0, 7, width);  // in two pieces
  sum_partials<From, To>(rows.data(), row_of.data(), n, out.data(), 7, kTokens, width);
  for (int64_t t = 0; t < kTokens; ++t) {
    for (int64_t c = 0; c < width; ++c) {
      std::vector<float> terms;
      for (int64_t p = 0; p < n; ++p) {
        const int32_t row = row_of[static_cast<size_t>(t * n + p)];
        terms.push_back(row < 0 ? 0.0f : load(rows[static_cast<size_t>(row * width + c)]));
      }
      To expected;
      store(expected, tree(terms, 0, terms.size()));
      ASSERT_EQ(std::memcmp(&expected, &out[static_cast<size_t>(t * width + c)], sizeof(To)), 0)
          << n << " ranks, token " << t << ", element " << c;
    }
  }
}

TEST(PartialSums, AreTheTreeOverAllRanksWithZerosForThoseThatHaveNothing) {
  for (const int64_t n : {1, 2, 3, 4, 5, 6, 7, 8, 12, 13, 33}) {
    for (const double share : {0.0, 0.2, 0.6, 1.0}) {
      expect_tree<float, float>(n, share, 5);
      expect_tree<Bf16, Bf16>(n, share, 17);
      expect_tree<Bf16, float>(n, share, 3);
      expect_tree<float, Bf16>(n, share, 300);  // more than one block
    }
  }
}

}  // namespace
}  // namespace athanor::kernels::partial_sums_test
