#include "comm/sum_order.h"

#include <gtest/gtest.h>

namespace athanor::comm::sum_order_test {
namespace {

TEST(SumOrder, TheTreeOfTheHostHasAsManyLevelsAsDoublingsReachAllRanksAndRoundsOnce) {
  for (int64_t ranks = 1; ranks <= 70; ++ranks) {
    int64_t doublings = 0;
    for (int64_t joined = 1; joined < ranks; joined *= 2) ++doublings;
    EXPECT_EQ(sum_order(ranks, c10::kCPU).additions, doublings) << ranks;
    EXPECT_EQ(sum_order(ranks, c10::kCPU).roundings, 1) << ranks;
  }
}

TEST(SumOrder, DevicesMayAddOneRankAfterTheOtherAndRoundEachTime) {
  EXPECT_EQ(sum_order(8, c10::kCUDA).additions, 7);
  EXPECT_EQ(sum_order(8, c10::kCUDA).roundings, 7);
  EXPECT_EQ(sum_order(1, c10::kCUDA).additions, 0);
  EXPECT_EQ(sum_order(1, c10::kCUDA).roundings, 1);
}

}  // namespace
}  // namespace athanor::comm::sum_order_test
