#include "kernels/routing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <type_traits>
#include <vector>

#include "kernels/error_bound.h"

namespace athanor::kernels::routing_test {
namespace {

using Ids = std::vector<int64_t>;

Ids choose(const std::vector<float>& scores, int64_t rows, int64_t k) {
  Ids ids(static_cast<size_t>(rows * k), -1);
  top_k(scores.data(), ids.data(), rows, static_cast<int64_t>(scores.size()) / rows, k);
  return ids;
}

TEST(TopK, GivesTheLargestFirst) { EXPECT_EQ(choose({1, 5, 3, 4, 2}, 1, 3), (Ids{1, 3, 2})); }

TEST(TopK, GivesTiesToTheLowerIndex) {
  EXPECT_EQ(choose({7, 7, 7, 7}, 1, 2), (Ids{0, 1}));
  EXPECT_EQ(choose({1, 2, 1, 2, 2}, 1, 2), (Ids{1, 3}));
  EXPECT_EQ(choose({1, 2, 1, 2, 2}, 1, 4), (Ids{1, 3, 4, 0}));
  EXPECT_EQ(choose({0.0f, -0.0f, 0.0f}, 1, 3), (Ids{0, 1, 2}));
}

TEST(TopK, OfAllSortsAndOfOneIsTheMaximum) {
  EXPECT_EQ(choose({3, 1, 2}, 1, 3), (Ids{0, 2, 1}));
  EXPECT_EQ(choose({3, 9, 2, 9}, 1, 1), (Ids{1}));
  EXPECT_EQ(choose({-4}, 1, 1), (Ids{0}));
}

TEST(TopK, TreatsEachRowByItself) { EXPECT_EQ(choose({1, 2, 3, 3, 2, 1}, 2, 2), (Ids{2, 1, 0, 1})); }

TEST(TopK, OfNoRowsWritesNothing) { top_k(nullptr, nullptr, 0, 8, 2); }

TEST(TopK, EqualsAStableSortOnManyTies) {
  constexpr int64_t kRows = 500, kWidth = 33;
  std::mt19937 random(1);
  std::vector<float> scores(kRows * kWidth);
  for (float& s : scores) s = static_cast<float>(random() % 8);  // 33 scores of 8 values: ties everywhere
  for (const int64_t k : {1, 2, 8, 33}) {
    const Ids ids = choose(scores, kRows, k);
    for (int64_t row = 0; row < kRows; ++row) {
      const float* s = scores.data() + row * kWidth;
      Ids expected(kWidth);
      std::iota(expected.begin(), expected.end(), 0);
      std::stable_sort(expected.begin(), expected.end(), [s](int64_t a, int64_t b) { return s[a] > s[b]; });
      expected.resize(static_cast<size_t>(k));
      ASSERT_EQ(Ids(ids.begin() + row * k, ids.begin() + (row + 1) * k), expected) << "row " << row << " k " << k;
    }
  }
}

struct Sorted {
  Ids offsets, choice_of_row, row_of_choice;
};

Sorted sort(const Ids& ids, int64_t k, int64_t first, int64_t count, int64_t row_alignment = 1) {
  const int64_t tokens = static_cast<int64_t>(ids.size()) / k;
  const auto most = static_cast<size_t>(max_rows(tokens, k, count, row_alignment));
  Sorted s{Ids(static_cast<size_t>(count + 1)), Ids(most, -7), Ids(ids.size(), -7)};
  sort_choices(ids.data(), tokens, k, first, count, s.offsets.data(), s.choice_of_row.data(), s.row_of_choice.data(),
               row_alignment);
  s.choice_of_row.resize(static_cast<size_t>(s.offsets.back()));
  return s;
}

TEST(SortChoices, SortsByExpertAndWithinAnExpertByToken) {
  const Sorted s = sort({2, 0, 0, 1, 2, 0}, 2, 0, 3);
  EXPECT_EQ(s.offsets, (Ids{0, 3, 4, 6}));
  EXPECT_EQ(s.choice_of_row, (Ids{1, 2, 5, 3, 0, 4}));
  EXPECT_EQ(s.row_of_choice, (Ids{4, 0, 1, 3, 5, 2}));
}

TEST(SortChoices, IgnoresExpertsOutsideTheLocalRange) {
  const Sorted s = sort({0, 3, 1, 2, 9, 1, -1, 2}, 2, 1, 2);
  EXPECT_EQ(s.offsets, (Ids{0, 2, 4}));
  EXPECT_EQ(s.choice_of_row, (Ids{2, 5, 3, 7}));
  EXPECT_EQ(s.row_of_choice, (Ids{-1, -1, 0, 2, -1, 1, -1, 3}));
}

TEST(SortChoices, LeavesExpertsWithoutTokensEmpty) {
  EXPECT_EQ(sort({3, 3}, 1, 0, 5).offsets, (Ids{0, 0, 0, 0, 2, 2}));
  EXPECT_EQ(sort({}, 2, 0, 3).offsets, (Ids{0, 0, 0, 0}));
  EXPECT_EQ(sort({5, 6}, 2, 0, 3).offsets, (Ids{0, 0, 0, 0}));
}

TEST(SortChoices, PadsExpertsWithChoicesToTheAlignmentAndNoOthers) {
  const Sorted s = sort({2, 0, 0, 3, 2, 0, 0, 0}, 2, 0, 5, 4);
  EXPECT_EQ(s.offsets, (Ids{0, 8, 8, 12, 16, 16}));
  EXPECT_EQ(s.choice_of_row, (Ids{1, 2, 5, 6, 7, -1, -1, -1, 0, 4, -1, -1, 3, -1, -1, -1}));
  EXPECT_EQ(s.row_of_choice, (Ids{8, 0, 1, 12, 9, 2, 3, 4}));
  EXPECT_EQ(sort({0, 1, 2}, 1, 0, 3, 32).choice_of_row.size(),
            static_cast<size_t>(max_rows(3, 1, 3, 32)));  // the worst
}

TEST(SortChoices, RowOfChoiceIsTheInverseOfChoiceOfRow) {
  std::mt19937 random(2);
  Ids ids(4 * 257);
  for (int64_t& id : ids) id = random() % 16;
  const Sorted s = sort(ids, 4, 3, 9);
  for (size_t row = 0; row < s.choice_of_row.size(); ++row) {
    EXPECT_EQ(s.row_of_choice[static_cast<size_t>(s.choice_of_row[row])], static_cast<int64_t>(row));
  }
  const auto ignored = std::count(s.row_of_choice.begin(), s.row_of_choice.end(), -1);
  EXPECT_EQ(ignored + s.choice_of_row.size(), ids.size());
}

template <class T>
std::vector<T> numbers(int64_t n, int seed) {
  std::mt19937 random(static_cast<uint32_t>(seed));
  std::vector<T> x(static_cast<size_t>(n));
  for (T& value : x) store(value, static_cast<float>(random()) / 0x1p31f - 1);
  return x;
}

template <class T>
class Rows : public testing::Test {
 protected:
  static constexpr int64_t kTokens = 13, kChoices = 3, kWidth = 21;
  static constexpr double kStored = std::is_same_v<T, float> ? 0 : kRoundoffBf16;
  const Sorted sorted_ = [] {
    std::mt19937 random(3);
    Ids ids(kTokens * kChoices);
    for (int64_t& id : ids) id = random() % 7;
    return sort(ids, kChoices, 2, 4, 4);  // some tokens lose choices, perhaps all of them; some rows are padding
  }();
  const int64_t received_ = sorted_.offsets.back();
};
using Elements = testing::Types<float, Bf16>;
TYPED_TEST_SUITE(Rows, Elements);

TYPED_TEST(Rows, GatherCopiesTheTokenOfEachRowAndZeroesPadding) {
  using F = Rows<TypeParam>;
  const auto x = numbers<TypeParam>(F::kTokens * F::kWidth, 4);
  std::vector<TypeParam> rows(static_cast<size_t>(this->received_ * F::kWidth), TypeParam{0x7FC0});
  const auto* choices = this->sorted_.choice_of_row.data();
  gather_rows(x.data(), choices, rows.data(), 0, 5, F::kChoices, F::kWidth);
  gather_rows(x.data(), choices, rows.data(), 5, this->received_, F::kChoices, F::kWidth);
  for (int64_t r = 0; r < this->received_; ++r) {
    for (int64_t i = 0; i < F::kWidth; ++i) {
      const float expected = choices[r] < 0 ? 0 : load(x[choices[r] / F::kChoices * F::kWidth + i]);
      ASSERT_EQ(load(rows[r * F::kWidth + i]), expected);
    }
  }
}

TYPED_TEST(Rows, CombineSumsEachTokensRowsByWeightOrPlainly) {
  using F = Rows<TypeParam>;
  const auto y = numbers<TypeParam>(this->received_ * F::kWidth, 5);
  const auto weights = numbers<float>(F::kTokens * F::kChoices, 6);
  const auto& rows = this->sorted_.row_of_choice;
  for (const float* w : {weights.data(), static_cast<const float*>(nullptr)}) {
    std::vector<TypeParam> out(F::kTokens * F::kWidth, TypeParam{0x7FC0});  // garbage, to see what is not written
    combine_rows(y.data(), w, rows.data(), out.data(), 0, 4, F::kChoices, F::kWidth);
    combine_rows(y.data(), w, rows.data(), out.data(), 4, F::kTokens, F::kChoices, F::kWidth);
    for (int64_t t = 0; t < F::kTokens; ++t) {
      for (int64_t i = 0; i < F::kWidth; ++i) {
        double exact = 0, norm = 0;
        for (int64_t c = t * F::kChoices; c < (t + 1) * F::kChoices; ++c) {
          if (rows[c] < 0) continue;
          const double term = (w ? double{w[c]} : 1.0) * load(y[rows[c] * F::kWidth + i]);
          exact += term;
          norm += std::abs(term);
        }
        const double bound = error_bound(norm, F::kStored, F::kChoices);
        ASSERT_LE(std::abs(load(out[t * F::kWidth + i]) - exact), bound) << "token " << t;
      }
    }
  }
}

}  // namespace
}  // namespace athanor::kernels::routing_test
