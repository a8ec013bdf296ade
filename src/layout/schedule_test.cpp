#include "layout/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "base/text.h"

namespace athanor::schedule_test {
namespace {

#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

constexpr Work F = Work::kForward, B = Work::kBackward;

double ideal_bubble(int p, int v, int m) { return static_cast<double>(p - 1) / static_cast<double>(v * m + p - 1); }

std::string error_of(const Schedule& schedule) {
  try {
    check_schedule(schedule);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::string faults(const std::string& name, int p, int v, int64_t m) {
  return join(find_schedule_faults(name, p, v, m), "\n");
}

TEST(Schedule, GpipeIsAllForwardsThenAllBackwards) {
  EXPECT_EQ(describe(make_schedule("gpipe", 2, 1, 3)),
            "rank 0: F0 F1 F2 B0 B1 B2\n"
            "rank 1: F0 F1 F2 B0 B1 B2\n");
}

TEST(Schedule, OneForwardOneBackwardBeginsWithAForwardForEachRankBehind) {
  EXPECT_EQ(describe(make_schedule("1f1b", 3, 1, 4)),
            "rank 0: F0 F1 F2 B0 F3 B1 B2 B3\n"
            "rank 1: F0 F1 B0 F2 B1 F3 B2 B3\n"
            "rank 2: F0 B0 F1 B1 F2 B2 F3 B3\n");
}

// Narayanan et al. 2021, figure 4, with two ranks.
TEST(Schedule, InterleavedSendsAGroupThroughEachChunkInTurn) {
  EXPECT_EQ(describe(make_schedule("interleaved_1f1b", 2, 2, 4)),
            "rank 0: F0.0 F1.0 F0.1 F1.1 F2.0 B0.1 F3.0 B1.1 F2.1 B0.0 F3.1 B1.0 B2.1 B3.1 B2.0 B3.0\n"
            "rank 1: F0.0 F1.0 F0.1 B0.1 F1.1 B1.1 F2.0 B0.0 F3.0 B1.0 F2.1 B2.1 F3.1 B3.1 B2.0 B3.0\n");
}

TEST(Schedule, OneRankTakesOneMicrobatchAfterTheOtherWhateverTheName) {
  for (const char* name : {"gpipe", "1f1b", "interleaved_1f1b"}) {
    const Schedule schedule = make_schedule(name, 1, 1, 3);
    EXPECT_EQ(describe(schedule), "rank 0: F0 B0 F1 B1 F2 B2\n");
    const ScheduleFacts facts = check_schedule(schedule);
    EXPECT_EQ(facts.in_flight, std::vector<int>{1});
    EXPECT_EQ(facts.bubble, 0);
  }
}

TEST(Schedule, HoldsWhatIsKnownOfGpipeAndOneForwardOneBackward) {
  for (int p = 2; p <= 9; ++p) {
    for (int m = 1; m <= 20; ++m) {
      const ScheduleFacts gpipe = check_schedule(make_schedule("gpipe", p, 1, m));
      EXPECT_NEAR(gpipe.bubble, ideal_bubble(p, 1, m), 1e-12) << p << " " << m;
      EXPECT_EQ(gpipe.in_flight, std::vector<int>(static_cast<size_t>(p), m));
      const ScheduleFacts facts = check_schedule(make_schedule("1f1b", p, 1, m));
      EXPECT_NEAR(facts.bubble, ideal_bubble(p, 1, m), 1e-12) << p << " " << m;
      for (int r = 0; r < p; ++r) EXPECT_EQ(facts.in_flight[static_cast<size_t>(r)], std::min(m, p - r));
    }
  }
}

TEST(Schedule, HoldsWhatIsKnownOfInterleaved) {
  for (int p = 2; p <= 8; ++p) {
    for (int v = 2; v <= 5; ++v) {
      for (int m = p; m <= 5 * p; m += p) {
        const ScheduleFacts facts = check_schedule(make_schedule("interleaved_1f1b", p, v, m));
        EXPECT_NEAR(facts.bubble, ideal_bubble(p, v, m), 1e-12) << p << " " << v << " " << m;
        for (int r = 0; r < p; ++r) {
          EXPECT_EQ(facts.in_flight[static_cast<size_t>(r)], std::min(v * m, (v - 1) * p + 2 * (p - 1 - r) + 1));
        }
      }
    }
  }
}

TEST(Schedule, OfUnequalStagesTheSlowestSetsThePace) {
  const Schedule schedule = make_schedule("1f1b", 2, 1, 10);
  const Timeline played = play_schedule(schedule, {{1, 2}, {2, 3}});
  EXPECT_EQ(played[0].back().end_s, 1 + 10 * 5 + 2);
  EXPECT_NEAR(bubble_of(played), 1 - 80.0 / (2 * 53), 1e-12);
  const auto costs = mean_costs(schedule, played);
  ASSERT_EQ(costs.size(), 2u);
  EXPECT_NEAR(costs[0].backward, 2, 1e-12);
  EXPECT_NEAR(costs[1].forward, 2, 1e-12);
}

TEST(Schedule, WhatCannotBeHadSaysWithWhichNumbersItCan) {
  EXPECT_EQ(faults("1f1b", 4, 1, 4), "");
  EXPECT_EQ(faults("gpipe", 4, 1, 1), "");
  EXPECT_EQ(faults("interleaved_1f1b", 4, 2, 8), "");
  EXPECT_EQ(faults("1f1b", 4, 1, 1), "");  // this is slow, but correct
  EXPECT_HAS(faults("interleaved_1f1b", 4, 2, 3), "train.global_batch_size");
  EXPECT_HAS(faults("1f1b", 4, 2, 8), "virtual_stages is 2: set parallelism.virtual_stages = 1");
  EXPECT_HAS(faults("gpipe", 4, 3, 8), "virtual_stages is 3");
  EXPECT_HAS(faults("gpipe", 4, 1, 0), "there are 0");
  EXPECT_HAS(faults("1f1b", 4, 1, 0), "there are 0");
  EXPECT_HAS(faults("interleaved_1f1b", 4, 1, 8), "virtual_stages is 1: set parallelism.virtual_stages to 2");
  EXPECT_HAS(faults("interleaved_1f1b", 4, 2, 6), "groups of 4, one for each pipeline rank, and there are 6");
  EXPECT_HAS(faults("interleaved_1f1b", 4, 1, 6), "virtual_stages");
  EXPECT_HAS(faults("interleaved_1f1b", 4, 1, 6), "groups of 4");  // both faults at once
  EXPECT_HAS(faults("gpipe", 2, 1, int64_t{1} << 40), "raise train.micro_batch_size");
  EXPECT_HAS(faults("1f1", 2, 1, 4), "did you mean \"1f1b\"");
  EXPECT_HAS(faults("interleaved_1f1b", 1, 2, 4), "parallelism.virtual_stages (2)");
  EXPECT_THROW(make_schedule("interleaved_1f1b", 4, 2, 3), ConfigError);
}

TEST(Schedule, AnActionThatIsMissingOrThereTwiceIsNamed) {
  Schedule schedule = make_schedule("1f1b", 2, 1, 3);
  schedule.actions[1].pop_back();
  EXPECT_HAS(error_of(schedule), "rank 1 lacks B2");
  schedule.actions[1].push_back({B, 1, 0});
  EXPECT_HAS(error_of(schedule), "rank 1 has B1 twice");
  schedule.actions[1].back() = {B, 3, 0};
  EXPECT_HAS(error_of(schedule), "rank 1 has B3, of 3 microbatches");
}

TEST(Schedule, BackwardsOutOfOrderAreRefusedForTheSumsTheyWouldMake) {
  Schedule schedule{"mine", 1, 1, 2, {{{F, 0, 0}, {F, 1, 0}, {B, 1, 0}, {B, 0, 0}}}};
  EXPECT_HAS(error_of(schedule), "rank 0 has B0 after B1");
}

TEST(Schedule, RanksThatWaitForOneAnotherAreNamedWithTheirActions) {
  // Rank 0 needs its first gradient before it sends the input with which rank 1 begins.
  Schedule schedule{"mine", 2, 1, 2, {{{F, 0, 0}, {B, 0, 0}, {F, 1, 0}, {B, 1, 0}}, {}}};
  schedule.actions[1] = {{F, 0, 0}, {F, 1, 0}, {B, 0, 0}, {B, 1, 0}};
  EXPECT_EQ(
      error_of(schedule),
      "bug: schedule mine never ends; there wait rank 0 with B0 for B0 of rank 1, rank 1 with F1 for F1 of rank 0");
  schedule.actions[0] = {{B, 0, 0}, {F, 0, 0}, {F, 1, 0}, {B, 1, 0}};
  EXPECT_HAS(error_of(schedule), "rank 0 with B0 for F0 of rank 0");
}

}  // namespace
}  // namespace athanor::schedule_test
