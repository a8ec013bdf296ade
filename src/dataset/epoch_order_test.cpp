#include "dataset/epoch_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace athanor::epoch_order_test {
namespace {

std::vector<int64_t> rows(EpochOrder& order, int64_t size) {
  std::vector<int64_t> all;
  for (int64_t i = 0; i < size; ++i) all.push_back(order.row(i));
  return all;
}

std::vector<int64_t> range(int64_t begin, int64_t size) {
  std::vector<int64_t> all(static_cast<size_t>(size));
  std::iota(all.begin(), all.end(), begin);
  return all;
}

std::vector<int64_t> sorted(std::vector<int64_t> values) {
  std::ranges::sort(values);
  return values;
}

TEST(PartsOrder, RowsOfOnePartComeAsTheyLie) { EXPECT_EQ(rows(*make_parts_order({17}, 5), 17), range(5, 17)); }

TEST(PartsOrder, EachPartGivesItsShareAtEveryMomentAndItsRowsInOrder) {
  for (const std::vector<int64_t>& parts :
       std::vector<std::vector<int64_t>>{{10, 30}, {1, 1, 1}, {100, 1}, {1, 100}, {7, 3, 90, 55, 1}, {5, 0, 5}}) {
    const int64_t size = std::accumulate(parts.begin(), parts.end(), int64_t{0});
    const auto order = make_parts_order(parts, 3);
    std::vector<int64_t> first(parts.size(), 3), taken(parts.size());
    for (size_t p = 1; p < parts.size(); ++p) first[p] = first[p - 1] + parts[p - 1];
    for (int64_t i = 0; i < size; ++i) {
      const int64_t row = order->row(i);
      const auto part = static_cast<size_t>(std::ranges::upper_bound(first, row) - first.begin() - 1);
      ASSERT_EQ(row, first[part] + taken[part]) << "element " << i;
      ++taken[part];
      for (size_t p = 0; p < parts.size(); ++p) {
        const double share = static_cast<double>(parts[p]) * static_cast<double>(i + 1) / static_cast<double>(size);
        ASSERT_LE(std::abs(static_cast<double>(taken[p]) - share), static_cast<double>(parts.size()) / 2);
      }
    }
  }
}

TEST(PartsOrder, AnyIndexCanBeAskedForFirst) {
  const std::vector<int64_t> parts{997, 10, 3000, 1, 444, 444, 89};
  const int64_t size = std::accumulate(parts.begin(), parts.end(), int64_t{0});
  const auto expected = rows(*make_parts_order(parts, 0), size);
  for (int64_t i = 0; i < size; ++i) ASSERT_EQ(make_parts_order(parts, 0)->row(i), expected[static_cast<size_t>(i)]);
  const auto order = make_parts_order(parts, 0);
  for (int64_t i = size - 1; i >= 0; i -= 13) ASSERT_EQ(order->row(i), expected[static_cast<size_t>(i)]);
}

TEST(PartsOrder, ManyRowsDoNotOverflow) {
  const int64_t size = int64_t{1} << 60;
  const auto order = make_parts_order({size, size / 3, 5}, 0);
  EXPECT_EQ(order->row(0), 0);
  const int64_t last = order->row(size + size / 3 + 4);
  EXPECT_TRUE(last == size - 1 || last == size + size / 3 - 1 || last == size + size / 3 + 4);
}

TEST(BlocksOrder, EachRowComesOnceAndBlocksStayTogether) {
  for (const int64_t size : {1, 7, 8, 9, 80, 85}) {
    const auto order = make_blocks_order({1, 100, size}, 8, 5);
    const auto all = rows(*order, size);
    ASSERT_EQ(sorted(all), range(100, size)) << size;
    // Rows of one block follow each other: the block changes only as often as there are blocks.
    int64_t changes = 1;
    for (size_t i = 1; i < all.size(); ++i) changes += (all[i] - 100) / 8 != (all[i - 1] - 100) / 8;
    EXPECT_EQ(changes, (size + 7) / 8) << size;
  }
}

TEST(BlocksOrder, EpochsSeedsAndBlocksHaveDifferentOrders) {
  const auto of = [](int64_t epoch, uint64_t seed) { return rows(*make_blocks_order({epoch, 0, 85}, 8, seed), 85); };
  EXPECT_EQ(of(1, 5), of(1, 5));
  EXPECT_NE(of(1, 5), of(2, 5));
  EXPECT_NE(of(1, 5), of(1, 6));
  const auto all = of(1, 5);
  std::vector<std::vector<int64_t>> within;
  for (size_t i = 0; i + 8 <= all.size(); ++i) {
    if (all[i] / 8 != all[i + 7] / 8 || all[i] / 8 == 10) continue;
    within.emplace_back();
    for (size_t j = 0; j < 8; ++j) within.back().push_back(all[i + j] % 8);
  }
  ASSERT_EQ(within.size(), 10u);
  std::ranges::sort(within);
  EXPECT_GT(std::unique(within.begin(), within.end()) - within.begin(), 5) << "rows of a block are permuted too";
}

TEST(BlocksOrder, TheRowsThatFillNoBlockAreNotAlwaysLast) {
  int64_t last = 0;
  for (int64_t epoch = 1; epoch <= 40; ++epoch) last += make_blocks_order({epoch, 0, 19}, 8, 5)->row(18) >= 16;
  EXPECT_GT(last, 0);
  EXPECT_LT(last, 30) << "they have three places";
}

}  // namespace
}  // namespace athanor::epoch_order_test
