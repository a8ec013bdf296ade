// Spikes as a part of the state of a run.

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "base/testing/folder_test.h"
#include "model/initialize.h"
#include "record/run_folder.h"
#include "saves/checkpointing.h"
#include "train/testing/batches.h"
#include "train/testing/layout_cases.h"
#include "train/train_step.h"

namespace athanor::spike_state_test {
namespace {

TEST(Spikes, AStepBeyondTheLimitsChangesNothing) {
  const RunConfig config = config_with({.name = ""});
  TrainState state(config, {});
  initialize_parameters(config.model, 1, state.model.parameters);
  const Tensor before = state.model.parameters.compute().clone();
  for (const StepLimits limits : {StepLimits{.loss = 1}, StepLimits{.grad_norm = 1e-3}}) {
    EXPECT_EQ(train_step(state, fixed_batch(config), limits).verdict, Verdict::kSpike);
    EXPECT_TRUE(at::equal(before, state.model.parameters.compute()));
    EXPECT_EQ(state.position.step, 0);
    state.model.parameters.grad().zero_();
  }
  EXPECT_EQ(train_step(state, fixed_batch(config), {.loss = 100, .grad_norm = 100}).verdict, Verdict::kApply);
}

using SpikesOnDisk = FolderTest;

TEST_F(SpikesOnDisk, ACheckpointHasThem) {
  RunConfig config = config_with({.name = ""});
  config.train.run_dir = folder_.string();
  TrainState state(config, {}), other(config, {});
  initialize_parameters(config.model, 1, state.model.parameters);
  for (int64_t step = 1; step <= 101; ++step) {
    const double value = step == 101 ? 9 : 3 + 0.01 * std::sin(static_cast<double>(step));
    state.position.spikes.take(step, value, value);
  }
  state.position.step = 101;
  std::filesystem::create_directories(RunFolder{config.train.run_dir}.checkpoints());
  save_checkpoint(state);
  ASSERT_TRUE(load_newest_checkpoint(other, RunFolder{config.train.run_dir}.checkpoints()));
  EXPECT_EQ(other.position.spikes.to_json(), state.position.spikes.to_json());
}

}  // namespace
}  // namespace athanor::spike_state_test
