#include "checkpoint/slice.h"

#include <gtest/gtest.h>

#include <map>

#include "base/error.h"
#include "base/random.h"
#include "base/testing/folder_test.h"
#include "checkpoint/testing/random_slices.h"

namespace athanor::slice_test {
namespace {

/// Global row-major index → position in the slice, by brute force.
std::map<int64_t, int64_t> elements_of(const Slice& slice) {
  std::map<int64_t, int64_t> elements;
  for (int64_t i = 0; i < slice.num_elements(); ++i) {
    const auto index = global_index(slice, i);
    int64_t flat = 0;
    for (size_t d = 0; d < index.size(); ++d) flat = flat * slice.global_shape[d] + index[d];
    elements[flat] = i;
  }
  return elements;
}

TEST(Slice, CommonRunsAreExactlyTheCommonElementsOfAnyTwoSlices) {
  RandomSlices random(17);
  for (int round = 0; round < 3000; ++round) {
    const auto shape = random.shape();
    const auto a = random.slice(shape), b = random.slice(shape);
    const auto in_a = elements_of(a), in_b = elements_of(b);
    std::map<int64_t, int64_t> expected, found;  // position in a → position in b
    for (const auto& [global, position] : in_a) {
      if (const auto other = in_b.find(global); other != in_b.end()) expected[position] = other->second;
    }
    const CommonRuns runs(a, b);
    runs.for_each([&](const CommonRun& run) {
      for (int64_t i = 0; i < run.count; ++i) ASSERT_TRUE(found.emplace(run.in_a + i, run.in_b + i).second);
    });
    ASSERT_EQ(found, expected) << shape_text(shape) << "\n a " << slice_text(a) << "\n b " << slice_text(b);
    ASSERT_EQ(runs.empty(), expected.empty());
  }
}

TEST(Slice, ACursorHandsOutTheSameElementsBlockByBlock) {
  RandomSlices random(18);
  for (int round = 0; round < 1000; ++round) {
    const auto shape = random.shape();
    const auto a = random.slice(shape), b = random.slice(shape);
    const CommonRuns runs(a, b);
    std::map<int64_t, int64_t> whole, in_blocks;
    runs.for_each([&](const CommonRun& run) {
      for (int64_t i = 0; i < run.count; ++i) whole[run.in_a + i] = run.in_b + i;
    });
    CommonRuns::Cursor cursor(runs);
    const int64_t block = 1 + random.below(9);
    for (int64_t end = block; end < a.num_elements() + block; end += block) {
      while (const auto run = cursor.next_before(end)) {
        ASSERT_GT(run->count, 0);
        ASSERT_GE(run->in_a, end - block);
        ASSERT_LE(run->in_a + run->count, end);
        for (int64_t i = 0; i < run->count; ++i) ASSERT_TRUE(in_blocks.emplace(run->in_a + i, run->in_b + i).second);
      }
    }
    ASSERT_EQ(in_blocks, whole) << shape_text(shape) << "\n a " << slice_text(a) << "\n b " << slice_text(b);
  }
}

TEST(Slice, EqualSlicesShareOneRun) {
  const auto slice = whole_slice({7, 3, 5});
  int num_runs = 0;
  CommonRuns(slice, slice).for_each([&](const CommonRun& run) {
    ++num_runs;
    EXPECT_EQ(run.count, 105);
  });
  EXPECT_EQ(num_runs, 1);
}

TEST(Slice, AScalarIsOneElementAndAnEmptyExtentNone) {
  const auto scalar = whole_slice({});
  EXPECT_EQ(scalar.num_elements(), 1);
  EXPECT_FALSE(CommonRuns(scalar, scalar).empty());
  const auto nothing = whole_slice({4, 0, 2});
  EXPECT_EQ(nothing.num_elements(), 0);
  EXPECT_TRUE(CommonRuns(nothing, nothing).empty());
}

TEST(Slice, ABoxOrRangeOutsideIsRefused) {
  const auto refusal = [](const Slice& slice) { return message_of<CheckpointError>([&] { check_slice(slice, "x"); }); };
  EXPECT_SAYS(refusal(box_slice({4, 4}, {0, 2}, {4, 3})), "dim 1 holds elements 2 to 2+3, but shape [4, 4] has 4");
  EXPECT_SAYS(refusal(box_slice({4, 4}, {-1, 0}, {1, 1})), "dim 0");
  EXPECT_SAYS(refusal(box_slice({4, 4}, {INT64_MAX, 0}, {1, 1})), "dim 0");
  EXPECT_SAYS(refusal(box_slice({4, 4}, {0}, {4})), "as many dims");
  EXPECT_SAYS(refusal({{4}, {1}, {2}, 0, 3}), "elements 0 to 3");
  EXPECT_SAYS(refusal({{4}, {1}, {2}, 2, 1}), "elements 2 to 1");
  EXPECT_SAYS(refusal(box_slice({1LL << 40, 1LL << 40}, {0, 0}, {1, 1})), "impossible");
  check_slice(Slice{{4}, {4}, {0}, 0, 0}, "an empty box at the end is fine");
}

}  // namespace
}  // namespace athanor::slice_test
