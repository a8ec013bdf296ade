// Tests that a node whose numbers are wrong, and a model or data that give values that are not finite, are
// distinguished in every layout. Ranks are threads, each on a separate node or two on a node.

#include "watch/numbers_verdict.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "base/exit_codes.h"
#include "base/testing/folder_test.h"
#include "watch/testing/planned_numbers.h"

namespace athanor::numbers_verdict_test {
namespace {

using Fault = NumbersVerdict::Fault;

PlannedOutcome run(const LayoutCase& layout, const PlannedNumbers& planned) { return judge_planned(layout, planned); }

// The layouts with several ranks; without `all` those that together have every axis and setting.
std::vector<LayoutCase> layouts_of(bool all) {
  constexpr std::string_view kMoreOfTheSame[] = {"tensor", "sequence", "experts, all-to-all"};
  std::vector<LayoutCase> layouts;
  for (const LayoutCase& layout : kLayoutCases)
    if (layout.ranks() > 1 && (all || !std::ranges::count(kMoreOfTheSame, layout.name))) layouts.push_back(layout);
  return layouts;
}

// Puts NaN into `times` moments of each layout: once and always in turns, on nodes of one rank and of two.
void expect_node_at_fault(int times) {
  const auto seed = std::random_device()();
  SCOPED_TRACE(fmt::format("drawn with seed {}", seed));
  std::mt19937 draw(seed);
  auto turn = draw() % 4;
  for (const LayoutCase& layout : layouts_of(times > 1)) {
    for (int time = 0; time < times; ++time, ++turn) {
      PlannedNumbers planned{.bad_rank = static_cast<int>(draw() % static_cast<unsigned>(layout.ranks())),
                             .moment = -1,
                             .always = turn % 2 == 0,
                             .per_node = turn / 2 % 2 == 0 || layout.ranks() < 4 ? 1 : 2};
      planned.moment = draw() % static_cast<unsigned>(run(layout, planned).num_moments);
      const NumbersVerdict verdict = run(layout, planned).verdict;
      const std::string what = fmt::format("{}: rank {}, moment {}, {}: {}", layout.name, planned.bad_rank,
                                           planned.moment, planned.always ? "always" : "once", verdict.reason);
      EXPECT_EQ(verdict.fault, Fault::kNode) << what;
      EXPECT_EQ(verdict.exit_code(), exit_code::kNumbersOfANode) << what;
      ASSERT_TRUE(verdict.origin) << what;
      EXPECT_EQ(verdict.origin->rank, planned.bad_rank) << what;
    }
  }
}

TEST(NumbersVerdict, ANodeThatComputesNaNIsAtFaultWhetherItDoesSoOnceOrAlways) { expect_node_at_fault(1); }

TEST(TestAllNumbersVerdict, ANodeThatComputesNaNIsAtFaultWhetherItDoesSoOnceOrAlways) { expect_node_at_fault(4); }

// Puts NaN into `times` sequences of each layout.
void expect_data_at_fault(int times) {
  const auto seed = std::random_device()();
  SCOPED_TRACE(fmt::format("drawn with seed {}", seed));
  std::mt19937 draw(seed);
  for (const LayoutCase& layout : layouts_of(times > 1)) {
    for (int time = 0; time < times; ++time) {
      const auto sequence = static_cast<int>(draw() % static_cast<unsigned>(3 * layout.data));
      const NumbersVerdict verdict = run(layout, {.bad_sequence = sequence}).verdict;
      const std::string what = fmt::format("{}: sequence {}: {}", layout.name, sequence, verdict.reason);
      EXPECT_EQ(verdict.fault, Fault::kModel) << what;
      EXPECT_EQ(verdict.exit_code(), exit_code::kNumbersEverywhere) << what;
      EXPECT_SAYS(verdict.reason, fmt::format("sequence {} of the step's {}", sequence, 3 * layout.data));
    }
  }
}

TEST(NumbersVerdict, DataThatGiveNaNAreAtFaultOnEveryNodeAndTheirPlaceIsNamed) { expect_data_at_fault(1); }

TEST(TestAllNumbersVerdict, DataThatGiveNaNAreAtFaultOnEveryNodeAndTheirPlaceIsNamed) { expect_data_at_fault(3); }

TEST(NumbersVerdict, OnOneNodeNothingIsProven) {
  const PlannedOutcome outcome = run({.name = "", .data = 2}, {.bad_rank = 1, .moment = 3, .per_node = 2});
  EXPECT_EQ(outcome.verdict.fault, Fault::kUnproven);
  EXPECT_EQ(outcome.verdict.exit_code(), exit_code::kNumbersEverywhere);
  EXPECT_SAYS(outcome.verdict.reason, "all ranks are on one node");
  EXPECT_SAYS(outcome.verdict.reason, "it comes up again when the step is computed again on the same node");
  EXPECT_FALSE(outcome.verdict.came_up_once);
}

TEST(NumbersVerdict, OnOneNodeAValueThatCameUpOnceIsToldAsSuch) {
  for (const LayoutCase& layout : {LayoutCase{.name = "one rank"}, LayoutCase{.name = "", .tensor = 2}}) {
    const PlannedOutcome outcome = run(layout, {.bad_rank = 0, .moment = 3, .always = false, .per_node = 2});
    EXPECT_EQ(outcome.verdict.fault, Fault::kUnproven);
    EXPECT_TRUE(outcome.verdict.came_up_once);
    EXPECT_SAYS(outcome.verdict.reason,
                "all is finite when the step is computed again on the same node: it came up once");
  }
}

}  // namespace
}  // namespace athanor::numbers_verdict_test
