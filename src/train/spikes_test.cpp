#include "train/spikes.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "base/testing/folder_test.h"
#include "model/initialize.h"
#include "train/testing/fixed_batch.h"
#include "train/testing/layout_cases.h"
#include "train/train_step.h"

namespace athanor::spikes_test {
namespace {

// Losses and norms as training has them: noise around a slow descent.
Spikes after(int steps, std::mt19937& draw) {
  std::normal_distribution<double> noise;
  Spikes spikes;
  for (int i = 0; i < steps; ++i) spikes.add(3 - 0.001 * i + 0.05 * noise(draw), 1 + 0.2 * noise(draw));
  return spikes;
}

TEST(Spikes, NothingIsOneBeforeThereIsAHistory) {
  std::mt19937 draw(1);
  const Spikes spikes = after(Spikes::kLeast - 1, draw);
  EXPECT_TRUE(std::isinf(spikes.limits().loss));
  EXPECT_EQ(spikes.describe(100, 100), "");
}

TEST(Spikes, NoiseIsNotOneAndAStepOfADivergingRunIs) {
  std::mt19937 draw(2);
  std::normal_distribution<double> noise;
  Spikes spikes = after(200, draw);
  for (int i = 0; i < 2000; ++i) {
    const double loss = 2.8 + 0.05 * noise(draw), norm = 1 + 0.2 * noise(draw);
    ASSERT_EQ(spikes.describe(loss, norm), "") << i;
    spikes.add(loss, norm);
  }
  EXPECT_SAYS(spikes.describe(4, 1), "the loss is 4, above");
  EXPECT_SAYS(spikes.describe(2.8, 12), "the gradient norm is 12, above");
  EXPECT_SAYS(spikes.describe(4, 12), "; the gradient norm is 12");
}

TEST(Spikes, AStepBeyondTheLimitsChangesNothing) {
  const RunConfig config = config_with({.name = ""});
  TrainState state(config, {});
  initialize_parameters(config.model, 1, state.model.parameters);
  const Tensor before = state.model.parameters.compute().clone();
  for (const StepLimits limits : {StepLimits{.loss = 1}, StepLimits{.grad_norm = 1e-3}}) {
    state.limits = limits;
    EXPECT_EQ(train_step(state, fixed_batch(config)).verdict, Verdict::kSpike);
    EXPECT_TRUE(at::equal(before, state.model.parameters.compute()));
    EXPECT_EQ(state.position.step, 0);
    state.model.parameters.grad().zero_();
  }
  state.limits = {.loss = 100, .grad_norm = 100};
  EXPECT_EQ(train_step(state, fixed_batch(config)).verdict, Verdict::kApply);
}

TEST(Spikes, ARunThatWasInterruptedHasTheSameLimits) {
  std::mt19937 draw(3);
  std::normal_distribution<double> noise;
  Spikes spikes;
  std::string lines = "{\"step\": 0, \"loss\": nu";  // torn
  lines += "\n";
  for (int step = 1; step <= 300; ++step) {
    const double loss = 3 + 0.05 * noise(draw) + (step == 250 ? 5 : 0), norm = 1 + 0.2 * noise(draw);
    if (spikes.describe(loss, norm).empty()) spikes.add(loss, norm);
    lines += fmt::format("{{\"step\": {}, \"loss\": {}, \"grad_norm\": {}}}\n", step, loss, norm);
  }
  lines += "{\"step\": 301, \"loss\": 9, \"grad_norm\": 9}\n";  // a step that is done again
  const Spikes again = spikes_of_history(lines, 300);
  EXPECT_EQ(again.limits().loss, spikes.limits().loss);
  EXPECT_EQ(again.limits().grad_norm, spikes.limits().grad_norm);
  EXPECT_SAYS(again.describe(8, 1), "the loss is 8");
}

}  // namespace
}  // namespace athanor::spikes_test
