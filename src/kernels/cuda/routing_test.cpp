#include "kernels/routing.h"

#include <algorithm>
#include <numeric>

#include "kernels/cuda/router.h"
#include "kernels/cuda/routing.h"
#include "kernels/cuda/testing/device.h"

namespace athanor::kernels::routing_test {
namespace {

using namespace test;
using Ids = std::vector<int64_t>;

struct Sorted {
  Ids offsets, choice_of_row, row_of_choice;
};

class RoutingOn : public OnEachPlace {
 protected:
  Ids choose(const std::vector<float>& scores, int64_t rows, int64_t width, int64_t k) {
    const auto from = put(scores);
    const auto to = put(Ids(static_cast<size_t>(rows * k), -7));
    if (is_cpu()) {
      top_k(from.data(), to.data(), rows, width, k);
    } else {
      // The router chooses by its noise alone, if it is told to; its scores do not matter then.
      const auto unused = put(scores), logsumexp = put(std::vector<float>(static_cast<size_t>(rows)));
      const cuda::ChoosingRule choosing{from.data(), true, nullptr, from.data()};
      cuda::route_rows<float>(stream(), unused.data(), {width, k}, choosing, nullptr,
                              {unused.data(), logsumexp.data(), nullptr, to.data(), nullptr}, rows);
    }
    return to.values();
  }

  Sorted sort(const Ids& ids, int64_t k, int64_t first, int64_t experts, int64_t alignment) {
    const int64_t tokens = static_cast<int64_t>(ids.size()) / k, most = max_rows(tokens, k, experts, alignment);
    const auto from = put(ids);
    const auto offsets = put(Ids(static_cast<size_t>(experts + 1), -7));
    const auto choices = put(Ids(static_cast<size_t>(most), -7)), rows = put(Ids(ids.size(), -7));
    if (is_cpu()) {
      sort_choices(from.data(), tokens, k, first, experts, offsets.data(), choices.data(), rows.data(), alignment);
    } else {
      const auto space = put(Ids(static_cast<size_t>(cuda::sort_choices_workspace(tokens, experts)), -7));
      cuda::sort_choices(stream(), from.data(), tokens, k, first, experts, offsets.data(), choices.data(), rows.data(),
                         space.data(), alignment);
      cuda::synchronize(stream());
    }
    Sorted sorted{offsets.values(), choices.values(), rows.values()};
    sorted.choice_of_row.resize(static_cast<size_t>(sorted.offsets.back()));  // the CPU writes nothing beyond it
    return sorted;
  }
};
ATHANOR_ON_EACH_PLACE(RoutingOn);

Ids random_ids(int64_t count, int64_t experts, unsigned salt) {
  Ids ids(static_cast<size_t>(count));
  const auto x = numbers<float>(count, salt, static_cast<float>(experts));
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int64_t>(std::abs(x[i])) % experts;
  return ids;
}

TEST_P(RoutingOn, TopKIsAStableSortWithTiesZerosAndInfinities) {
  for (const auto& [width, k] : {std::pair<int64_t, int64_t>{1, 1}, {7, 7}, {33, 8}, {64, 8}, {128, 1}, {300, 5}}) {
    constexpr int64_t kRows = 77;
    auto scores = numbers<float>(kRows * width, 3, 4);
    for (float& s : scores) s = std::trunc(s);  // −0 and 0 are among them: ties everywhere
    for (size_t i = 5; i < scores.size(); i += 11) scores[i] = i % 2 ? -INFINITY : INFINITY;
    const Ids ids = choose(scores, kRows, width, k);
    for (int64_t row = 0; row < kRows; ++row) {
      const float* s = scores.data() + row * width;
      Ids expected(static_cast<size_t>(width));
      std::iota(expected.begin(), expected.end(), 0);
      std::stable_sort(expected.begin(), expected.end(), [s](int64_t a, int64_t b) { return s[a] > s[b]; });
      expected.resize(static_cast<size_t>(k));
      ASSERT_EQ(Ids(ids.begin() + row * k, ids.begin() + (row + 1) * k), expected) << row << " of width " << width;
    }
  }
}

TEST_P(RoutingOn, SortingGroupsByExpertThenTokenWithPaddedGroups) {
  // Up to 188, 625 and 4,375 blocks of tokens, the last of 16 tokens each.
  for (const int64_t tokens : {0, 1, 40, 1500, 5000, 70'000}) {
    for (const int64_t alignment : {1, 32}) {
      constexpr int64_t kChoices = 3, kAll = 11, kFirst = 2, kLocal = 7;
      Ids ids = random_ids(tokens * kChoices, kAll, 5);
      for (int64_t& id : ids) id = id == 4 ? 5 : id;  // expert 4 gets none
      const Sorted s = sort(ids, kChoices, kFirst, kLocal, alignment);
      Sorted expected{{0}, {}, Ids(ids.size(), -1)};
      for (int64_t e = kFirst; e < kFirst + kLocal; ++e) {
        for (size_t c = 0; c < ids.size(); ++c) {
          if (ids[c] != e) continue;
          expected.row_of_choice[c] = static_cast<int64_t>(expected.choice_of_row.size());
          expected.choice_of_row.push_back(static_cast<int64_t>(c));
        }
        while (expected.choice_of_row.size() % static_cast<size_t>(alignment) != 0)
          expected.choice_of_row.push_back(-1);
        expected.offsets.push_back(static_cast<int64_t>(expected.choice_of_row.size()));
      }
      ASSERT_EQ(s.offsets, expected.offsets) << tokens << " tokens, alignment " << alignment;
      ASSERT_EQ(s.choice_of_row, expected.choice_of_row) << tokens << " tokens, alignment " << alignment;
      ASSERT_EQ(s.row_of_choice, expected.row_of_choice) << tokens << " tokens, alignment " << alignment;
    }
  }
}

TEST_P(RoutingOn, SortingHandlesMoreExpertsThanATeamHasThreadsAndAllTokensOnOne) {
  constexpr int64_t kExperts = 700;
  const Ids spread = random_ids(3000, kExperts, 6);
  EXPECT_EQ(sort(spread, 2, 0, kExperts, 1).offsets.back(), 3000);
  const Sorted one = sort(Ids(2000, 699), 1, 0, kExperts, 1);
  EXPECT_EQ(one.offsets[699], 0);
  EXPECT_EQ(one.offsets[700], 2000);
  Ids in_order(2000);
  std::iota(in_order.begin(), in_order.end(), 0);
  EXPECT_EQ(one.choice_of_row, in_order);
}

// 16 tokens with 3 choices of 6 experts; the last two experts are elsewhere, and groups are padded to 4.
struct Rows {
  static constexpr int64_t kTokens = 16, kChoices = 3, kChosen = kTokens * kChoices;
  Rows()
      : offsets(5), choice_of_row(static_cast<size_t>(max_rows(kTokens, kChoices, 4, 4)), 7), row_of_choice(kChosen) {
    const Ids ids = random_ids(kChosen, 6, 8);
    sort_choices(ids.data(), kTokens, kChoices, 0, 4, offsets.data(), choice_of_row.data(), row_of_choice.data(), 4);
  }
  int64_t count() const { return static_cast<int64_t>(choice_of_row.size()); }  // more than there are
  Ids offsets, choice_of_row, row_of_choice;
};

constexpr int64_t kWidths[] = {1, 37, 64, 520};  // packed and unpacked; a team's stride and more

TEST_P(RoutingOn, GatherAndCombineHaveTheBitsOfTheirDefinition) {
  const Rows rows;
  with_each_type([&](auto tag) {
    using T = decltype(tag);
    for (const int64_t width : kWidths) {
      const auto x = numbers<T>(Rows::kTokens * width, 9);
      const auto weights = numbers<float>(Rows::kChosen, 10);
      const auto from = put(x), gathered = put(garbage<T>(rows.count() * width));
      const auto combined = put(garbage<T>(Rows::kTokens * width)), summed = put(garbage<T>(Rows::kTokens * width));
      const auto w = put(weights);
      const auto choices = put(rows.choice_of_row), places = put(rows.row_of_choice), count = put(rows.offsets);
      if (is_cpu()) {
        gather_rows(from.data(), choices.data(), gathered.data(), 0, rows.offsets.back(), Rows::kChoices, width);
        combine_rows(gathered.data(), w.data(), places.data(), combined.data(), 0, Rows::kTokens, Rows::kChoices,
                     width);
        combine_rows<T>(gathered.data(), nullptr, places.data(), summed.data(), 0, Rows::kTokens, Rows::kChoices,
                        width);
      } else {
        const int64_t* num_rows = count.data() + rows.offsets.size() - 1;
        cuda::gather_rows(stream(), from.data(), {choices.data(), num_rows, rows.count()}, gathered.data(),
                          Rows::kChoices, width);
        cuda::combine_rows<T>(stream(), gathered.data(), nullptr, w.data(), places.data(), combined.data(),
                              Rows::kTokens, Rows::kChoices, width);
        cuda::combine_rows<T>(stream(), gathered.data(), nullptr, nullptr, places.data(), summed.data(), Rows::kTokens,
                              Rows::kChoices, width);
      }
      auto expected_rows = garbage<T>(rows.count() * width);  // what is after the last row stays
      std::fill_n(expected_rows.begin(), rows.offsets.back() * width, T{});
      std::vector<T> expected, expected_sum;
      for (int64_t r = 0; r < rows.offsets.back(); ++r) {
        if (rows.choice_of_row[r] < 0) continue;
        std::copy_n(x.begin() + rows.choice_of_row[r] / Rows::kChoices * width, width,
                    expected_rows.begin() + r * width);
      }
      for (int64_t i = 0; i < Rows::kTokens * width; ++i) {
        float weighted = 0, plain = 0;
        for (int64_t c = i / width * Rows::kChoices; c < (i / width + 1) * Rows::kChoices; ++c) {
          if (rows.row_of_choice[c] < 0) continue;
          const float value = load(expected_rows[rows.row_of_choice[c] * width + i % width]);
          weighted += weights[c] * value;
          plain += value;
        }
        store(expected.emplace_back(), weighted);
        store(expected_sum.emplace_back(), plain);
      }
      expect_same_bits(gathered.values(), expected_rows, "gathered");
      expect_same_bits(combined.values(), expected, "combined");
      expect_same_bits(summed.values(), expected_sum, "summed");
    }
  });
}

TEST_P(RoutingOn, RowsOfTokensInAnotherOrderArePlacedByTheirNewNumbers) {
  if (is_cpu()) GTEST_SKIP() << "the CPU's form is in moe/dispatch_local.cpp";
  const Rows rows;
  Ids token_of(Rows::kTokens);  // token i of the sort is token 5·i + 3 of the new numbers
  for (size_t i = 0; i < token_of.size(); ++i) token_of[i] = (5 * static_cast<int64_t>(i) + 3) % Rows::kTokens;
  Ids choices = rows.choice_of_row, places(Rows::kChosen, -1);
  for (int64_t r = 0; r < rows.offsets.back(); ++r) {
    if (choices[r] < 0) continue;
    choices[r] = token_of[choices[r] / Rows::kChoices] * Rows::kChoices + choices[r] % Rows::kChoices;
    places[choices[r]] = r;
  }
  const auto old_choices = put(rows.choice_of_row), token = put(token_of), count = put(rows.offsets);
  const auto new_choices = put(rows.choice_of_row), new_places = put(Ids(Rows::kChosen, -1));
  const int64_t* num_rows = count.data() + rows.offsets.size() - 1;
  cuda::renumber_choices(stream(), {old_choices.data(), num_rows, rows.count()}, token.data(), Rows::kChoices,
                         new_choices.data(), new_places.data());
  expect_same_bits(new_choices.values(), choices, "choices");
  expect_same_bits(new_places.values(), places, "places");
  with_each_type([&](auto tag) {
    using T = decltype(tag);
    for (const int64_t width : kWidths) {
      // The rows are in the new order, and are placed at the rows of the same choices in the old one.
      const auto x = numbers<T>(rows.count() * width, 9);
      Ids place_of(Rows::kChosen, -1);
      for (int64_t r = 0; r < rows.offsets.back(); ++r)
        if (choices[r] >= 0) place_of[choices[r]] = rows.offsets.back() - 1 - r;
      auto expected = garbage<T>(rows.count() * width);  // where no row is placed it stays
      for (int64_t r = 0; r < rows.offsets.back(); ++r) {
        if (choices[r] < 0) continue;
        std::copy_n(x.begin() + r * width, width, expected.begin() + place_of[choices[r]] * width);
      }
      const auto from = put(x), to = put(garbage<T>(rows.count() * width)), at = put(place_of);
      cuda::place_rows<T>(stream(), from.data(), {new_choices.data(), num_rows, rows.count()}, at.data(), to.data(),
                          width);
      expect_same_bits(to.values(), expected, "placed");
    }
  });
}

TEST_P(RoutingOn, CombiningTwoTermsRoundsOnlyTheirSum) {
  if (is_cpu()) GTEST_SKIP() << "a product adds both terms on the CPU";
  const Rows rows;
  with_each_type([&](auto tag) {
    using T = decltype(tag);
    for (const int64_t width : kWidths) {
      const auto y = numbers<T>(rows.count() * width, 9), z = numbers<T>(rows.count() * width, 11);
      const auto first = put(y), second = put(z), out = put(garbage<T>(Rows::kTokens * width));
      const auto places = put(rows.row_of_choice);
      cuda::combine_rows<T>(stream(), first.data(), second.data(), nullptr, places.data(), out.data(), Rows::kTokens,
                            Rows::kChoices, width);
      std::vector<T> expected;
      for (int64_t i = 0; i < Rows::kTokens * width; ++i) {
        float sum = 0;
        for (int64_t c = i / width * Rows::kChoices; c < (i / width + 1) * Rows::kChoices; ++c) {
          const int64_t at = rows.row_of_choice[c] * width + i % width;
          if (at >= 0) sum += load(y[at]) + load(z[at]);
        }
        store(expected.emplace_back(), sum);
      }
      expect_same_bits(out.values(), expected, "combined");
    }
  });
}

}  // namespace
}  // namespace athanor::kernels::routing_test
