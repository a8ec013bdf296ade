#include "watch/slow_ranks.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/testing/folder_test.h"
#include "comm/thread_ranks.h"
#include "train/testing/layout_cases.h"

namespace athanor::slow_ranks_test {
namespace {

TEST(SlowRanks, ARankIsComparedWithThoseThatHaveTheSameWorkAlone) {
  const std::vector<int> stages = {0, 0, 0, 0, 1, 1, 1, 1};
  EXPECT_TRUE(find_slow_ranks(std::vector<double>{1, 1.1, 0.9, 1, 2, 2.2, 2, 1.9}, stages).empty());
  const auto slow = find_slow_ranks(std::vector<double>{1, 1.2, 1, 1, 2, 2, 3, 2}, stages);
  ASSERT_EQ(slow.size(), 2u);
  EXPECT_EQ(slow[0].rank, 6);
  EXPECT_NEAR(slow[0].share, 0.5, 1e-9);
  EXPECT_EQ(slow[1].rank, 1);
}

TEST(SlowRanks, TwoRanksDoNotShowWhichOfThemIsSlow) {
  EXPECT_TRUE(find_slow_ranks(std::vector<double>{1, 5}, std::vector<int>{0, 0}).empty());
}

TEST(SlowRanks, ARankWhoseTimeIsNotKnownIsNeitherNamedNorCompared) {
  const double none = std::nan("");
  const std::vector<int> stages(4, 0);
  const auto slow = find_slow_ranks(std::vector<double>{1, none, 1, 2}, stages);
  ASSERT_EQ(slow.size(), 1u);
  EXPECT_EQ(slow[0].rank, 3);
  EXPECT_TRUE(find_slow_ranks(std::vector<double>{1, none, none, 2}, stages).empty());
}

TEST(SlowRanks, RanksThatKnowNoTimesStillCompareWithTheOthersInTheSameStep) {
  const RunConfig config = config_with({.name = "", .data = 4});
  comm::run_ranks(4, [&](comm::World& world) {
    const Mesh mesh(Layout(config, 4), world);
    SlowRanks slow(mesh);
    std::string line;
    for (int64_t step = 1; step <= 2 * SlowRanks::kSteps; ++step)
      line += slow.took(step, world.rank() == 0 || (world.rank() == 3 && step % 2) ? std::nan("")
                              : world.rank() == 2                                  ? 1.5
                                                                                   : 1);
    EXPECT_SAYS(line, "them: rank 2 (");
  });
}

TEST(SlowRanks, OneThatIsSlowFor20StepsIsNamedOnceAndOneSlowStepIsNot) {
  const RunConfig config = config_with({.name = "", .data = 4});
  comm::run_ranks(4, [&](comm::World& world) {
    const Mesh mesh(Layout(config, 4), world);
    SlowRanks slow(mesh);
    const auto line_after = [&](int64_t first, double of_rank_2, int slow_steps) {
      std::string line;
      for (int64_t step = first; step < first + SlowRanks::kSteps; ++step)
        line += slow.took(step, world.rank() == 2 && step < first + slow_steps ? of_rank_2 : 1);
      return line;
    };
    EXPECT_EQ(line_after(1, 9, 1), "");
    const std::string line = line_after(21, 1.3, 20);
    EXPECT_SAYS(line, "steps 21 to 40: ");
    EXPECT_SAYS(line, "rank 2 (");
    EXPECT_SAYS(line, " 30%");
    EXPECT_EQ(line_after(41, 1.3, 20), "");
  });
}

TEST(SlowRanks, ARankThatIsSlowNowAndThenIsNamedOnceUntilItWasNotSlowForSeveralComparisons) {
  const RunConfig config = config_with({.name = "", .data = 4});
  comm::run_ranks(4, [&](comm::World& world) {
    const Mesh mesh(Layout(config, 4), world);
    SlowRanks slow(mesh);
    int64_t step = 0;
    const auto line_after = [&](double of_rank_2) {
      std::string line;
      for (int i = 0; i < SlowRanks::kSteps; ++i) line += slow.took(++step, world.rank() == 2 ? of_rank_2 : 1);
      return line;
    };
    EXPECT_SAYS(line_after(1.3), "them: rank 2 (");
    for (int i = 0; i < 8; ++i) EXPECT_EQ(line_after(i % SlowRanks::kForgets == 0 ? 1.3 : 1), "") << i;
    EXPECT_EQ(line_after(1.3), "");
    for (int i = 1; i < SlowRanks::kForgets; ++i) EXPECT_EQ(line_after(1), "") << i;
    EXPECT_SAYS(line_after(1), "no rank is slower");
    EXPECT_EQ(line_after(1), "");
    EXPECT_SAYS(line_after(1.3), "them: rank 2 (");
  });
}

}  // namespace
}  // namespace athanor::slow_ranks_test
