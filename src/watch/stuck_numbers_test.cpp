#include "watch/stuck_numbers.h"

#include <gtest/gtest.h>

#include "base/testing/folder_test.h"

namespace athanor::stuck_numbers_test {
namespace {

TEST(StuckNumbers, AGradientThatIsExactlyZeroIsNamedOnceAndAtTheEnd) {
  StuckNumbers stuck;
  EXPECT_EQ(stuck.took(1, 5.5, 2, 100), "");
  EXPECT_SAYS(stuck.took(2, 1e7, 0, 100), "the gradient is exactly zero at a loss of 1e+07");
  for (int64_t step = 3; step <= 99; ++step)
    EXPECT_EQ(stuck.took(step, 1e7, 0, 100).find("the gradient"), std::string::npos);
  EXPECT_SAYS(stuck.at_end(), "exactly zero since step 2");
  EXPECT_EQ(stuck.took(100, 5, 1e-30, 100), "");
  EXPECT_EQ(stuck.at_end(), "");
  for (int64_t step = 101; step <= 120; ++step) stuck.took(step, 5 + double(step), 1, 100);
  EXPECT_SAYS(stuck.took(121, 4, 0, 100), "the gradient is exactly zero");
}

TEST(StuckNumbers, ALossThatDoesNotChangeInAnyBitForTwentyStepsIsNamed) {
  StuckNumbers stuck;
  for (int64_t step = 1; step <= 20; ++step) EXPECT_EQ(stuck.took(step, 2.5, 1, 100), "") << step;
  EXPECT_SAYS(stuck.took(21, 2.5, 1, 100), "the loss was 2.5 to the last bit in each of the last 21 steps");
  EXPECT_SAYS(stuck.at_end(), "has not changed in any bit since step 1");
  StuckNumbers learns;
  for (int64_t step = 1; step <= 100; ++step)
    EXPECT_EQ(learns.took(step, step % 20 == 0 ? 2.5000000000000004 : 2.5, 1, 100), "") << step;
}

TEST(StuckNumbers, AStepWithoutTargetsIsToldAsThat) {
  StuckNumbers stuck;
  EXPECT_SAYS(stuck.took(1, 0, 0, 0), "no token of this step has a loss");
}

TEST(StuckNumbers, ARunThatContinuesKnowsSinceWhen) {
  std::string lines;
  for (int step = 1; step <= 25; ++step)
    lines += "{\"step\": " + std::to_string(step) + ", \"loss\": " + (step < 10 ? std::to_string(step) : "5.5") +
             ", \"grad_norm\": " + (step < 10 ? "1.0" : "0.0") + "}\n";
  StuckNumbers stuck;
  stuck.take_history(lines, 20);
  EXPECT_EQ(stuck.took(21, 5.5, 0, 1), "") << "it was told before";
  EXPECT_SAYS(stuck.at_end(), "has been exactly zero since step 10");
}

}  // namespace
}  // namespace athanor::stuck_numbers_test
