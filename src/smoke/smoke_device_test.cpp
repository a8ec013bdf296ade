// The smoke test on the device that the host plays.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "smoke/smoke.h"
#include "smoke/smoke_tracer.h"
#include "train/testing/device_case.h"

namespace athanor::smoke_device_test {
namespace {

// Trains one of the models, with all its checks and the second run: the tracer waits for a step that does not come.
std::vector<SmokeRun> run_model(const std::string& model) {
  SmokeTracer tracer(TracedPlace::parse(model + ":1000:norm:gradients"));
  return run_smoke(guarded::kDevice, &tracer);
}

TEST(OnDeviceSmoke, ADenseModelPassesItsChecksAndTwiceWithTheSameBits) {
  const auto runs = run_model("dense");
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0].model, "dense");
  EXPECT_EQ(runs[0].steps.size(), 50u);
  EXPECT_EQ(runs[0].findings, std::vector<std::string>());
}

// The first loss and the routers' entropy are checked in the first step.
TEST(OnDeviceSmoke, ItsFirstStepsPassInEachTypeAndTwiceWithTheSameBits) {
  for (const std::string model : {"dense", "dense-bfloat16", "sparse", "sparse-float32"}) {
    std::vector<SmokeRun> runs;
    for (int i = 0; i < 2; ++i) {
      SmokeTracer tracer(TracedPlace::parse(model + ":2:norm:gradients"));
      for (SmokeRun& run : run_smoke(guarded::kDevice, &tracer)) runs.push_back(std::move(run));
    }
    ASSERT_EQ(runs.size(), 2u) << model;
    EXPECT_EQ(runs[0].steps.size(), 2u) << model;
    EXPECT_EQ(runs[0].findings, std::vector<std::string>()) << model;
    EXPECT_TRUE(runs[0].steps == runs[1].steps) << model;
  }
}

TEST(TestAllOnDeviceSmoke, PassesItsChecksInEachTypeAndTwiceWithTheSameBits) {
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
