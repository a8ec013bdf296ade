// The smoke test on the device that the host plays.

#include <gtest/gtest.h>

#include "train/smoke.h"
#include "train/testing/device_case.h"

namespace athanor::smoke_device_test {
namespace {

TEST(OnDeviceSmoke, PassesItsChecksInEachTypeAndTwiceWithTheSameBits) {
  const auto runs = run_smoke(guarded::kDevice);
  ASSERT_EQ(runs.size(), 4u);
  for (const SmokeRun& run : runs) {
    EXPECT_EQ(run.steps.size(), 50u);
    for (const auto& finding : run.findings) ADD_FAILURE() << run.model << ": " << finding;
  }
}

}  // namespace
}  // namespace athanor::smoke_device_test
