// What rounding does to updates, measured on the device that the host plays.

#include <gtest/gtest.h>

#include "metrics/layer_statistics.h"
#include "metrics/testing/observed_step.h"
#include "model/initialize.h"
#include "ops/transfer.h"
#include "train/testing/batches.h"
#include "train/testing/device_case.h"
#include "train/testing/steps.h"

namespace athanor::update_watch_device_test {
namespace {

class OnDeviceUpdateWatch : public ::testing::TestWithParam<std::string> {
 protected:
  void TearDown() override { guarded::queues().set_order({}); }

  // A rate that fp32 loses where a weight is above 2⁻⁵ or so.
  RunConfig config(int64_t interval) const {
    RunConfig c = small_device_run("qwen3_moe", GetParam());
    c.metrics.update_watch_interval = interval;
    c.optimizer.warmup_steps = 1;
    c.optimizer.lr = 3e-9;
    c.optimizer.weight_decay = 0;
    c.optimizer.max_grad_norm = 0;
    return c;
  }
};
INSTANTIATE_TEST_SUITE_P(, OnDeviceUpdateWatch, ::testing::Values("float32", "bfloat16"),
                         [](const auto& each) { return each.param; });

// One step from a gradient that is the same for all elements: each moves by the rate, up to roundings that are far from
// what would change whether fp32 loses it.
std::vector<ParameterUpdate> measure(const RunConfig& config, at::Device device) {
  TrainState state(config, {}, {.device = device});
  initialize_parameters(config.model, 7, state.model.parameters);
  const Batch batch = fixed_batch(config);
  Step step(state, batch);
  step.compute_gradients();
  for (const BucketEntry& entry : state.model.parameters.table())
    state.model.parameters.weight(entry.name).grad.fill_(1e-3);
  step.update();
  return step.finish().updates;
}

TEST_P(OnDeviceUpdateWatch, CountsAsTheCpuDoes) {
  guarded::queues().set_order({guarded::Order::Kind::kDrawn, 6});
  const auto here = measure(config(1), at::kCPU), there = measure(config(1), guarded::device_of_tests());
  ASSERT_EQ(here.size(), there.size());
  double lost = 0;
  for (size_t i = 0; i < here.size(); ++i) {
    EXPECT_EQ(here[i].lost_share, there[i].lost_share) << here[i].name;
    EXPECT_EQ(here[i].still_share, there[i].still_share) << here[i].name;
    if (GetParam() == "float32") {
      EXPECT_EQ(there[i].updates_per_move, 0);
    } else {
      const double moves = 1 / here[i].updates_per_move;  // 0 if every update is lost
      EXPECT_NEAR(1 / there[i].updates_per_move, moves, 0x1p-22 * moves) << here[i].name;
    }
    lost += here[i].lost_share;
  }
  EXPECT_GT(lost, 1);
}

TEST_P(OnDeviceUpdateWatch, ComesInTheStepsOneCopyTogetherWithLayersAndChangesNoBit) {
  guarded::queues().set_order({guarded::Order::Kind::kLatest});
  std::vector<Tensor> weights;
  for (const int64_t interval : {0, 1}) {
    const RunConfig c = config(interval);
    TrainState state(c, {}, {.device = guarded::device_of_tests()});
    initialize_parameters(c.model, 7, state.model.parameters);
    std::optional<LayerMetrics> layers;
    observed_step(state, fixed_batch(c), true, layers);
    const auto before = ops::transfer_counts();
    const StepReport report = observed_step(state, fixed_batch(c), true, layers);
    const auto transfers = ops::transfer_counts() - before;
    EXPECT_EQ(report.updates.empty(), interval == 0);
    EXPECT_EQ(layers->grad_norm.size(), 4U);
    if (GetParam() == "bfloat16") {  // in fp32 the host waits for the rows of each expert
      EXPECT_EQ(transfers.copies_to_host, 1);
      EXPECT_EQ(transfers.waits, 1);
    }
    weights.push_back(ops::fetch(state.model.parameters.compute()).clone());
  }
  EXPECT_TRUE(same_bits(weights[0], weights[1]));
}

}  // namespace
}  // namespace athanor::update_watch_device_test
