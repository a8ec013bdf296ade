#include "base/fault.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace athanor {
namespace {

// What is armed is read once in a process, by whichever test comes first: so before all of them, under names of no
// other.
const bool kArmed = ::setenv("ATHANOR_FAULT", "grad.wrong_scale:plant,late:plant@3,file:enospc", 1) == 0;

TEST(Fault, APlantedFaultIsAnsweredUnderItsNameOnlyAndFromItsCountOn) {
  ASSERT_TRUE(kArmed);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(fault_planted("grad.wrong_scale"));
  EXPECT_FALSE(fault_planted("grad.wrong"));
  EXPECT_FALSE(fault_planted("file"));
  EXPECT_FALSE(fault_planted("late"));
  EXPECT_FALSE(fault_planted("late"));
  EXPECT_TRUE(fault_planted("late"));
  EXPECT_FALSE(fault_planted("late"));
  EXPECT_EQ(fault_errno("grad.wrong_scale"), 0);
  EXPECT_NE(fault_errno("file"), 0);
  EXPECT_EQ(fault_errno("file"), 0);
}

}  // namespace
}  // namespace athanor
