#include "saves/save_interval.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>

#include "base/testing/folder_test.h"

namespace athanor::save_interval_test {
namespace {

TEST(SaveInterval, TheFormulaIsNearTheMinimumOfTheExpectedTime) {
  for (const double mtbf_s : {1e3, 1e5}) {
    for (const double part : {1e-5, 1e-3, 0.1, 0.5}) {
      const double cost_s = part * mtbf_s, best_s = best_interval_s(cost_s, mtbf_s);
      double least = expected_time(best_s, cost_s, 10, mtbf_s);
      const double found = least;
      for (double factor = 0.2; factor < 5; factor *= 1.01)
        least = std::min(least, expected_time(best_s * factor, cost_s, 10, mtbf_s));
      EXPECT_LE(found, 1.002 * least) << part << " of " << mtbf_s;  // Daly, section 5: within 0.2%
    }
  }
}

TEST(SaveInterval, OfSmallCostsIsYoungs) {
  EXPECT_NEAR(best_interval_s(1, 1e8) / std::sqrt(2e8), 1, 1e-3);
  EXPECT_EQ(best_interval_s(30, 10), 10);
}

class FailureRates : public FolderTest {
 protected:
  FailureRate rate(double mtbf_hours, const std::string& events) {
    const auto path = folder_ / "events.jsonl";
    std::ofstream(path) << events;
    return find_failure_rate(mtbf_hours, 4, path);
  }
};

TEST_F(FailureRates, AreThatOfTheConfigurationForEachNode) { EXPECT_EQ(rate(8, "").mtbf_s, 2 * 3600); }

TEST_F(FailureRates, AreThatOfTheRunIfItHasFailedTwiceAndStopsAreNoFailures) {
  const std::string killed = R"({"event": "start", "attempt": 1, "time": 1000}
{"event": "save", "attempt": 1, "time": 1600}
)",
                    stopped = R"({"event": "resume", "attempt": 2, "time": 2000}
{"event": "end", "attempt": 2, "time": 2400, "exit_code": 10}
)",
                    failed = R"({"event": "resume", "attempt": 3, "time": 3000}
not a line
{"event": "end", "attempt": 3, "time": 3200, "exit_code": 78}
)";
  const double published_s = rate(0, "").mtbf_s;
  EXPECT_EQ(rate(0, killed + stopped).mtbf_s, published_s);
  const FailureRate found = rate(0, killed + stopped + failed);
  EXPECT_EQ(found.mtbf_s, (600 + 400 + 200) / 2.0) << found.from;
  EXPECT_EQ(rate(0, killed + stopped + R"({"event": "end", "attempt": 3, "time": 3200, "exit_code": 143})").mtbf_s,
            published_s);
}

TEST(SaveInterval, CountsWhatStepsTakeLongerWhileASaveIsWritten) {
  SaveInterval interval({1e6, "here"});
  interval.restarted(10);
  EXPECT_FALSE(interval.is_due(1e9)) << "no step has shown yet what saving adds";
  interval.step_took(1, false);
  EXPECT_TRUE(interval.is_due(0));
  interval.began();
  EXPECT_FALSE(interval.is_due(1)) << "the first is being written";
  EXPECT_TRUE(interval.is_due(301)) << "the first has failed";
  interval.step_took(1.5, true);
  interval.step_took(3.5, true);
  const std::string told = interval.saved(0.1, 4);
  EXPECT_NE(told.find("one costs 3 s and is on disk after 4 s"), told.npos) << told;
  const double best_s = best_interval_s(3, 1e6);
  EXPECT_TRUE(interval.is_due(1.001 * best_s));
  EXPECT_FALSE(interval.is_due(0.999 * best_s));
  interval.step_took(4, true);
  EXPECT_EQ(interval.saved(0.1, 4), "") << "the same again";
}

TEST(SaveInterval, IsNotShorterThanTwiceTheTimeUntilASaveIsOnDisk) {
  SaveInterval interval({100, "here"});
  interval.step_took(1, false);
  interval.saved(0.001, 60);
  EXPECT_FALSE(interval.is_due(119));
  EXPECT_TRUE(interval.is_due(121));
}

}  // namespace
}  // namespace athanor::save_interval_test
