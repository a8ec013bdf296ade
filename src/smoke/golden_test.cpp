#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "smoke/smoke.h"

namespace athanor::golden_test {
namespace {

std::vector<SmokeRun> two_runs() {
  return {{"dense", {{5.5, 1.25}, {5.25, 1.0}}, {}}, {"sparse", {{5.0, 0.1}, {4.75, 0.3}}, {}}};
}

TEST(Golden, EqualRunsCompareEqual) {
  EXPECT_TRUE(compare_with_golden(two_runs(), golden_text(two_runs(), "here"), "g.json").empty());
}

TEST(Golden, TheFirstStepThatDiffersInOneBitIsNamed) {
  auto runs = two_runs();
  runs[1].steps[1].grad_norm = std::nextafter(0.3, 1.0);
  const auto lines = compare_with_golden(runs, golden_text(two_runs(), "here"), "g.json");
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_NE(lines[0].find("sparse: step 2 is the first that differs"), std::string::npos) << lines[0];
}

TEST(Golden, ADamagedFileIsNamed) {
  EXPECT_THROW(compare_with_golden(two_runs(), "{", "g.json"), DataError);
  EXPECT_THROW(compare_with_golden(two_runs(), R"({"models": {"dense": {"steps": [{}, {}]}}})", "g.json"), DataError);
}

}  // namespace
}  // namespace athanor::golden_test
