#include "config/duration.h"

#include <gtest/gtest.h>

namespace athanor::duration_test {
namespace {

TEST(Duration, UnitsAreAddedFromTheLargestToTheSmallest) {
  EXPECT_EQ(parse_duration("11h30m"), 41400);
  EXPECT_EQ(parse_duration("90s"), 90);
  EXPECT_EQ(parse_duration("1d1s"), 86401);
  EXPECT_EQ(parse_duration("1d2h3m4s"), 93784);
  EXPECT_EQ(parse_duration("0"), 0);
  EXPECT_EQ(parse_duration("1000d"), 86'400'000);
}

TEST(Duration, OtherTextsAreNoDurations) {
  for (const char* text : {"", "10", "m", "1h2h", "30m1h", "1.5h", "-1m", " 1m", "1m ", "1 m", "1w", "1H", "1001d",
                           "99999999999s", "11:30:00"})
    EXPECT_FALSE(parse_duration(text)) << text;
}

}  // namespace
}  // namespace athanor::duration_test
