#include "base/rate_limit.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace athanor::rate_limit_test {
namespace {

double seconds_of(const auto& act) {
  const auto begin = std::chrono::steady_clock::now();
  act();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

TEST(RateLimit, SeveralThreadsTogetherStayBelowIt) {
  RateLimit limit(1000);
  const double took_s = seconds_of([&] {
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; ++t) {
      threads.emplace_back([&] {
        for (int i = 0; i < 10; ++i) limit.take(50);
      });
    }
    for (auto& thread : threads) thread.join();
  });
  EXPECT_GE(took_s, 0.5 - 1e-3);  // 1500 at 1000 each second, of which those of the first second are saved up
}

TEST(RateLimit, WithoutALimitNothingWaits) {
  RateLimit limit(0);
  limit.take(1e300);  // would never return
}

}  // namespace
}  // namespace athanor::rate_limit_test
