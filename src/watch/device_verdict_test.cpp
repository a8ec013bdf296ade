// Tests that a node whose numbers are wrong, and a model or data that give values that are not finite, are
// distinguished on devices as on CPUs. Ranks are threads, each with a device that the host plays, whose memory the host
// cannot touch.

#include <gtest/gtest.h>

#include <random>

#include "base/exit_codes.h"
#include "base/testing/folder_test.h"
#include "train/testing/device_case.h"
#include "watch/testing/planned_numbers.h"

namespace athanor::device_verdict_test {
namespace {

using Fault = NumbersVerdict::Fault;
using guarded::Order;

// In the first three another node has the weights, so that sequences move; else ranks take over places with weights.
const std::vector<LayoutCase> kDeviceLayouts = {
    {.name = "data", .data = 3},
    {.name = "two ranks for each expert", .data = 4, .expert = 2, .dtype = "bfloat16"},
    {.name = "experts, two levels", .data = 4, .expert = 2, .dispatch = "all_to_all_2d"},
    {.name = "experts", .data = 2, .expert = 2},
    {.name = "sequence", .tensor = 2, .dtype = "bfloat16", .sequence = true},
    {.name = "pipeline", .pipeline = 3},
    {.name = "all", .data = 2, .tensor = 2, .pipeline = 2, .expert = 2, .sequence = true},
};

// The two levels of the experts need nodes of two ranks.
int ranks_per_node(const LayoutCase& layout) { return layout.dispatch == "all_to_all_2d" ? 2 : 1; }

// The layouts of that list with these numbers.
std::vector<LayoutCase> some_layouts(std::initializer_list<size_t> numbers) {
  std::vector<LayoutCase> some;
  for (const size_t number : numbers) some.push_back(kDeviceLayouts.at(number));
  return some;
}

std::string text_of(const LayoutCase& layout, const PlannedNumbers& planned, const NumbersVerdict& verdict) {
  return fmt::format("{}: rank {}, moment {}, {}, sequence {} {}: {}; {}", layout.name, planned.bad_rank,
                     planned.moment, planned.always ? "always" : "once", planned.bad_sequence, planned.bad_place,
                     verdict.origin ? verdict.origin->text(layout.ranks()) : "no origin", verdict.reason);
}

class OnDevicesVerdict : public ::testing::Test {
 protected:
  const unsigned seed_ = std::random_device()();
  const ::testing::ScopedTrace trace_{__FILE__, __LINE__, fmt::format("drawn with seed {}", seed_)};
  std::mt19937 draw_{seed_};

  PlannedNumbers planned(const LayoutCase& layout) {
    return {.per_node = ranks_per_node(layout), .on_devices = true, .order = {Order::Kind::kDrawn, draw_()}};
  }
  void a_node_is_at_fault(const LayoutCase& layout, bool always);
  void data_are_at_fault(const std::vector<LayoutCase>& layouts);
  void every_copy_is_counted(const std::vector<LayoutCase>& layouts);
};
class TestAllOnDevicesVerdict : public OnDevicesVerdict {};

void OnDevicesVerdict::a_node_is_at_fault(const LayoutCase& layout, bool always) {
  PlannedNumbers plan = planned(layout);
  plan.bad_rank = static_cast<int>(draw_() % static_cast<unsigned>(layout.ranks()));
  plan.always = always;
  plan.moment = -1;
  plan.moment = draw_() % static_cast<unsigned>(judge_planned(layout, plan).num_moments);
  const NumbersVerdict verdict = judge_planned(layout, plan).verdict;
  const std::string what = text_of(layout, plan, verdict);
  EXPECT_EQ(verdict.fault, Fault::kNode) << what;
  EXPECT_EQ(verdict.exit_code(), exit_code::kNumbersOfANode) << what;
  ASSERT_TRUE(verdict.origin) << what;
  EXPECT_EQ(verdict.origin->rank, plan.bad_rank) << what;
  EXPECT_EQ(verdict.origin->device, fmt::format("guarded:{}", plan.bad_rank)) << what;
}

// Once where sequences move to another node, and always where ranks take over places.
TEST_F(OnDevicesVerdict, ANodeThatComputesNaNIsAtFaultWhetherItDoesSoOnceOrAlways) {
  a_node_is_at_fault(kDeviceLayouts[0], /*always=*/false);
  a_node_is_at_fault(kDeviceLayouts[4], /*always=*/true);
}
TEST_F(TestAllOnDevicesVerdict, ANodeThatComputesNaNIsAtFaultWhetherItDoesSoOnceOrAlways) {
  for (const LayoutCase& layout : kDeviceLayouts)
    for (const bool always : {false, true}) a_node_is_at_fault(layout, always);
}

void OnDevicesVerdict::data_are_at_fault(const std::vector<LayoutCase>& layouts) {
  for (const LayoutCase& layout : layouts) {
    PlannedNumbers plan = planned(layout);
    plan.bad_sequence = static_cast<int>(draw_() % static_cast<unsigned>(3 * layout.data));
    const NumbersVerdict verdict = judge_planned(layout, plan).verdict;
    const std::string what = text_of(layout, plan, verdict);
    EXPECT_EQ(verdict.fault, Fault::kModel) << what;
    EXPECT_EQ(verdict.exit_code(), exit_code::kNumbersEverywhere) << what;
    EXPECT_SAYS(verdict.reason, fmt::format("sequence {} of the step's {}", plan.bad_sequence, 3 * layout.data));
  }
}
TEST_F(OnDevicesVerdict, DataThatGiveNaNAreAtFaultOnEveryNodeAndTheirPlaceIsNamed) {
  data_are_at_fault(some_layouts({0, 5}));
}
TEST_F(TestAllOnDevicesVerdict, DataThatGiveNaNAreAtFaultOnEveryNodeAndTheirPlaceIsNamed) {
  data_are_at_fault(kDeviceLayouts);
}

// In a step only layers are watched on a device; its repetition shows which part it was.
TEST_F(OnDevicesVerdict, AValueThatComesUpAgainIsNamedByThePartOfTheLayer) {
  for (const char* part : {"self_attn", "mlp"}) {
    for (const LayoutCase& layout :
         {kDeviceLayouts[0], kDeviceLayouts[5], LayoutCase{.name = "", .tensor = 2}, LayoutCase{.name = "one"}}) {
      PlannedNumbers plan = planned(layout);
      plan.bad_sequence = static_cast<int>(draw_() % static_cast<unsigned>(3 * layout.data));
      plan.bad_place = fmt::format("model.layers.1.{}", part);
      const NumbersVerdict verdict = judge_planned(layout, plan).verdict;
      ASSERT_TRUE(verdict.origin) << text_of(layout, plan, verdict);
      EXPECT_EQ(verdict.origin->seen.place, plan.bad_place) << text_of(layout, plan, verdict);
      EXPECT_EQ(verdict.origin->seen.phase, "forward");
    }
  }
}

// The transfers are counted by ops/transfer.h and by the devices: weights that another rank takes over go there and
// back in one message each, and nothing is copied that is not counted.
void OnDevicesVerdict::every_copy_is_counted(const std::vector<LayoutCase>& layouts) {
  for (const LayoutCase& layout : layouts) {
    PlannedNumbers plan = planned(layout);
    plan.bad_rank = 1, plan.moment = 2, plan.always = false;
    const PlannedOutcome outcome = judge_planned(layout, plan);
    EXPECT_EQ(outcome.transfers.copies_to_device, outcome.copies.to_device) << layout.name;
    EXPECT_EQ(outcome.transfers.copies_to_host, outcome.copies.to_host) << layout.name;
    EXPECT_GE(outcome.transfers.waits, outcome.transfers.copies_to_host) << layout.name;
  }
}
TEST_F(OnDevicesVerdict, EveryCopyOfAStepThatIsComputedAgainIsCounted) { every_copy_is_counted(some_layouts({3, 5})); }
TEST_F(TestAllOnDevicesVerdict, EveryCopyOfAStepThatIsComputedAgainIsCounted) { every_copy_is_counted(kDeviceLayouts); }

TEST_F(OnDevicesVerdict, WithoutMemoryForTheWeightsOfAnotherRankNothingIsProven) {
  PlannedNumbers plan = planned({.name = "", .pipeline = 3});
  plan.bad_rank = 2, plan.moment = 3;
  plan.before_verdict = [](int rank) {
    if (rank == 1) guarded::memory().fail_at(3);
  };
  const NumbersVerdict verdict = judge_planned({.name = "", .pipeline = 3}, plan).verdict;
  for (int device = 0; device < 3; ++device) guarded::memory(device).fail_at(-1);
  EXPECT_EQ(verdict.fault, Fault::kUnproven);
  ASSERT_TRUE(verdict.origin);
  EXPECT_EQ(verdict.origin->rank, 2);
  EXPECT_SAYS(verdict.reason, "a node has no memory for the weights of another rank");
}

TEST_F(OnDevicesVerdict, OnOneNodeAValueThatCameUpOnceIsToldAsSuch) {
  for (const LayoutCase& layout : {LayoutCase{.name = "one"}, LayoutCase{.name = "", .tensor = 2}}) {
    PlannedNumbers plan = planned(layout);
    plan.bad_rank = 0, plan.moment = 3, plan.always = false, plan.per_node = 2;
    const NumbersVerdict verdict = judge_planned(layout, plan).verdict;
    EXPECT_EQ(verdict.fault, Fault::kUnproven);
    EXPECT_TRUE(verdict.came_up_once);
    EXPECT_SAYS(verdict.reason, "all is finite when the step is computed again on the same device");
    EXPECT_SAYS(verdict.reason, ": it came up once");
  }
}

}  // namespace
}  // namespace athanor::device_verdict_test
