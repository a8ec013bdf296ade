// Statistics of layers on the device that the host plays, compared with the CPU.

#include <gtest/gtest.h>

#include "metrics/layer_statistics.h"
#include "metrics/testing/observed_step.h"
#include "model/initialize.h"
#include "ops/testing/other_orders.h"
#include "ops/transfer.h"
#include "train/testing/batches.h"
#include "train/testing/device_case.h"

namespace athanor::layer_statistics_device_test {
namespace {

struct Observed {
  LayerMetrics first;             // statistics of the first step
  ops::TransferCounts transfers;  // copies of the second one, which sends no angles
  Tensor weights;                 // after both
};

Observed observe(const RunConfig& config, at::Device device) {
  TrainState state(config, {}, {.device = device});
  initialize_parameters(config.model, 7, state.model.parameters);
  Observed result;
  std::optional<LayerMetrics> layers;
  observed_step(state, fixed_batch(config), true, layers);
  result.first = layers.value();
  const auto before = ops::transfer_counts();
  observed_step(state, fixed_batch(config), true, layers);
  result.transfers = ops::transfer_counts() - before;
  result.weights = ops::fetch(state.model.parameters.compute()).clone();
  return result;
}

// The numbers that the rounding of forward and backward changes.
std::vector<double> rounded_numbers(const LayerMetrics& layers) {
  std::vector<double> all;
  for (const auto* each : {&layers.grad_norm, &layers.update_norm, &layers.activation_rms, &layers.attention_logit_max})
    all.insert(all.end(), each->begin(), each->end());
  return all;
}

double largest_difference(const LayerMetrics& a, const LayerMetrics& b) {
  const auto x = rounded_numbers(a), y = rounded_numbers(b);
  double largest = 0;
  for (size_t i = 0; i < x.size(); ++i) largest = std::max(largest, std::abs(x[i] - y[i]) / std::abs(x[i]));
  return largest;
}

class OnDeviceLayerStatistics : public ::testing::TestWithParam<std::string> {
 protected:
  void TearDown() override { guarded::queues().set_order({}); }
  RunConfig config() const { return small_device_run("qwen3_moe", GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(, OnDeviceLayerStatistics, ::testing::Values("float32", "bfloat16"),
                         [](const auto& each) { return each.param; });

TEST_P(OnDeviceLayerStatistics, AreThoseOfTheCpuUpToRounding) {
  guarded::queues().set_order({guarded::Order::Kind::kDrawn, 6});
  const Observed here = observe(config(), at::kCPU), there = observe(config(), guarded::device_of_tests());
  // The weights before the first update are the same bits, so their counts are equal. Sums of n squares in fp64 differ
  // by n · 2⁻⁵³ of them at most.
  constexpr double kSumError = 2e5 * 0x1p-53;
  ASSERT_EQ(there.first.weights.size(), 4u);
  for (size_t row = 0; row < 4; ++row) {
    EXPECT_EQ(there.first.weights[row].counts, here.first.weights[row].counts);
    EXPECT_NEAR(there.first.weight_norm[row], here.first.weight_norm[row], kSumError * here.first.weight_norm[row]);
    double values = 0, gradients = 0;
    for (const double count : here.first.gradients[row].counts) values += count;
    for (const double count : there.first.gradients[row].counts) gradients += count;
    EXPECT_EQ(gradients, values);
  }
  const double rounding =
      ops::test::difference_of_paths([&] { return largest_difference(here.first, observe(config(), at::kCPU).first); });
  ASSERT_GT(rounding, 0);
  EXPECT_LE(largest_difference(here.first, there.first),
            ops::test::rounding_bound(rounding, config().model.hidden_size));
}

TEST_P(OnDeviceLayerStatistics, ComeInTheStepsOneCopyAndChangeNoBit) {
  guarded::queues().set_order({guarded::Order::Kind::kLatest});
  const Observed observed = observe(config(), guarded::device_of_tests());
  EXPECT_EQ(observed.transfers.copies_to_device, 1);
  if (GetParam() == "bfloat16") {  // in fp32 the host waits for the rows of each expert
    EXPECT_EQ(observed.transfers.copies_to_host, 1);
    EXPECT_EQ(observed.transfers.waits, 1);
  }
  TrainState state(config(), {}, {.device = guarded::device_of_tests()});
  initialize_parameters(config().model, 7, state.model.parameters);
  for (int step = 0; step < 2; ++step) train_step(state, fixed_batch(config()));
  EXPECT_TRUE(same_bits(ops::fetch(state.model.parameters.compute()), observed.weights));
}

}  // namespace
}  // namespace athanor::layer_statistics_device_test
