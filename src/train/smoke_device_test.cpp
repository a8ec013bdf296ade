// The smoke test on the device that the host plays.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "train/smoke.h"
#include "train/smoke_tracer.h"
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

TEST(OnDeviceSmoke, ATensorOfAStepIsTracedAsItIsThere) {
  for (const char* place : {"dense:1:forward.1:model.layers.1.mlp", "dense:1:gradient:lm_head.weight",
                            "sparse:1:update:lm_head.weight", "sparse:1:norm:gradients"}) {
    SmokeTracer tracer(TracedPlace::parse(place));
    run_smoke(guarded::kDevice, &tracer);
    const SmokeTrace trace = tracer.take(guarded::kDevice);
    EXPECT_EQ(trace.num_tensors(), 1u) << place;
    EXPECT_TRUE(std::ranges::any_of(trace.values, [](double value) { return value != 0; })) << place;
    EXPECT_TRUE(std::ranges::all_of(trace.values, [](double value) { return std::isfinite(value); })) << place;
  }
}

}  // namespace
}  // namespace athanor::smoke_device_test
