// Parameters and optimizer state on the device that the host plays: the values of the CPU.

#include <gtest/gtest.h>

#include <cstring>
#include <tuple>

#include "guarded/device.h"
#include "kernels/error_bound.h"
#include "ops/adamw.h"
#include "ops/sum_of_squares.h"
#include "ops/transfer.h"
#include "optim/adamw.h"
#include "optim/gradient_norm.h"
#include "optim/optimizer_set.h"

namespace athanor::optim_device_test {
namespace {

using guarded::Order;
using Use = ParameterStore::Use;

std::vector<BucketEntry> parameters() {
  return {{"a.norm.weight", Replication::kDense, {5}, {0}, {5}},
          {"b.weight", Replication::kDense, {300, 70}, {0, 0}, {300, 70}}};
}

// Values of every size, ties to bf16 among them.
void fill(ParameterStore& store) {
  for (const BucketEntry& entry : store.table()) {
    store.fill_master(entry.name, [](int64_t first, std::span<float> out) {
      for (size_t i = 0; i < out.size(); ++i) {
        const auto n = static_cast<uint32_t>(first) + static_cast<uint32_t>(i), bits = n * 2654435761u;
        out[i] = std::bit_cast<float>((bits & 0x807F0000u) | 0x3F000000u | (n % 3 == 0 ? 0x8000u : bits >> 16));
      }
    });
  }
}

void set_gradient(ParameterStore& store, uint64_t seed) {
  Tensor gradient = at::randn({store.flat_size()}, at::detail::createCPUGenerator(seed), at::kFloat);
  ops::send_bytes(store.grad(), gradient.data_ptr());
}

bool same_bits(const Tensor& a, const Tensor& b) {
  const Tensor x = ops::fetch(a).contiguous(), y = ops::fetch(b).contiguous();
  return x.nbytes() == y.nbytes() && std::memcmp(x.data_ptr(), y.data_ptr(), x.nbytes()) == 0;
}

class OnGuarded : public ::testing::TestWithParam<std::tuple<at::ScalarType, Order>> {
 protected:
  static void SetUpTestSuite() { guarded::install_for_tests(); }
  void SetUp() override { guarded::queues().set_order(std::get<1>(GetParam())); }
  void TearDown() override {
    guarded::queues().set_order({});
    guarded::set_kernels(true);
  }
  ParameterStore store(at::Device device) const {
    ParameterStore made(parameters(), std::get<0>(GetParam()), Use::kTraining, {}, device);
    fill(made);
    return made;
  }
};
INSTANTIATE_TEST_SUITE_P(, OnGuarded,
                         ::testing::Combine(::testing::Values(at::kFloat, at::kBFloat16),
                                            ::testing::Values(Order{}, Order{Order::Kind::kLatest},
                                                              Order{Order::Kind::kDrawn, 3})));

TEST_P(OnGuarded, MastersAreWrittenAndReadWithTheirBits) {
  ParameterStore here = store(at::kCPU), there = store(guarded::device_of_tests());
  for (const auto& entry : here.table())
    EXPECT_TRUE(same_bits(here.master_copy(entry.name), there.master_copy(entry.name))) << entry.name;
  EXPECT_TRUE(same_bits(here.compute(), there.compute()));
  std::vector<float> values(1000, 0.1234567f), read(600), expected(600);
  for (ParameterStore* each : {&here, &there}) each->write_master(each->entry("b.weight"), 100, values);
  here.read_master(here.entry("b.weight"), 900, expected);
  there.read_master(there.entry("b.weight"), 900, read);
  EXPECT_EQ(read, expected);
}

TEST_P(OnGuarded, StepsOfAdamwHaveTheBitsOfTheCpuWithoutAWait) {
  ParameterStore here = store(at::kCPU), there = store(guarded::device_of_tests());
  OptimizerConfig config;
  config.weight_decay = 0.1;
  AdamW on_host(config, here), on_device(config, there);
  const auto options = at::TensorOptions().device(guarded::device_of_tests());
  const Tensor changed = at::zeros({1}, options.dtype(at::kLong));
  int64_t expected_changes = 0;
  for (int64_t step = 1; step <= 4; ++step) {
    for (ParameterStore* each : {&here, &there}) set_gradient(*each, static_cast<uint64_t>(step));
    expected_changes += on_host.apply({step, 0.01, 0.25});
    const Tensor scale = at::full({}, 0.25, options.dtype(at::kFloat));
    const int64_t waits = ops::transfer_counts().waits;
    EXPECT_EQ(on_device.apply({step, 0.01, 1, {scale, changed}}), 0);
    EXPECT_EQ(ops::transfer_counts().waits, waits);
  }
  EXPECT_TRUE(same_bits(here.compute(), there.compute()));
  EXPECT_TRUE(same_bits(here.grad(), there.grad()));
  EXPECT_TRUE(same_bits(on_host.exp_avg(), on_device.exp_avg()));
  EXPECT_TRUE(same_bits(on_host.exp_avg_sq(), on_device.exp_avg_sq()));
  if (here.master_low().defined()) {
    EXPECT_TRUE(same_bits(here.master_low(), there.master_low()));
  }
  EXPECT_EQ(ops::fetch_item<int64_t>(changed), expected_changes);
}

TEST_P(OnGuarded, ARefusedStepChangesNothing) {
  for (const bool kernels : {true, false}) {
    guarded::set_kernels(kernels);
    ParameterStore there = store(guarded::device_of_tests());
    set_gradient(there, 1);
    AdamW optimizer({}, there);
    const Tensor weight = ops::fetch(there.compute()).clone(), grad = ops::fetch(there.grad()).clone();
    const auto options = at::TensorOptions().device(guarded::device_of_tests());
    const Tensor changed = at::zeros({1}, options.dtype(at::kLong));
    optimizer.apply({1, 0.1, 1, {at::full({}, std::nan(""), options.dtype(at::kFloat)), changed}});
    EXPECT_TRUE(same_bits(there.compute(), weight));
    EXPECT_TRUE(same_bits(there.grad(), grad));
    EXPECT_EQ(ops::fetch_item<float>(optimizer.exp_avg().abs().sum()), 0);
    EXPECT_EQ(ops::fetch_item<int64_t>(changed), 0);
  }
}

// The portable form rounds after each operation, as the kernels do. On the CPU, which plays the device, libtorch's
// square root may be the neighbour of the rounded one: a unit of 2⁻²³ in it, and so in the quotient, whose magnitude is
// below 4.
TEST_P(OnGuarded, WithoutKernelsStepsDifferByTheRoundingOfSquareRoots) {
  ParameterStore here = store(at::kCPU), there = store(guarded::device_of_tests());
  guarded::set_kernels(false);
  AdamW on_host({}, here), on_device({}, there);
  const auto options = at::TensorOptions().device(guarded::device_of_tests());
  const Tensor changed = at::zeros({1}, options.dtype(at::kLong));
  constexpr double kRate = 0.01, kSteps = 3;
  for (int64_t step = 1; step <= static_cast<int64_t>(kSteps); ++step) {
    for (ParameterStore* each : {&here, &there}) set_gradient(*each, static_cast<uint64_t>(step));
    on_host.apply({step, kRate, 0.5});
    on_device.apply({step, kRate, 1, {at::full({}, 0.5, options.dtype(at::kFloat)), changed}});
  }
  EXPECT_TRUE(same_bits(on_host.exp_avg(), on_device.exp_avg()));
  EXPECT_TRUE(same_bits(on_host.exp_avg_sq(), on_device.exp_avg_sq()));
  for (const auto& entry : here.table()) {
    const Tensor expected = here.master_copy(entry.name), off = (there.master_copy(entry.name) - expected).abs();
    const double largest = expected.abs().max().item<double>();
    EXPECT_LE(off.max().item<double>(), kSteps * 0x1p-23 * (4 * kRate + largest)) << entry.name;
  }
}

// The other optimizers have a form in torch ops alone, which rounds after each operation, as the kernels do. A division
// or root of libtorch may be the neighbour of the rounded one: as above, for updates whose size is below 4.
TEST_P(OnGuarded, OtherOptimizersStepAsOnTheCpuWithoutAWaitAndARefusedStepChangesNothing) {
  constexpr double kRate = 0.01, kSteps = 3;
  // LAMB numbers the matrices of a model: verify/device_layouts_test.cpp has it.
  for (const char* name : {"sgd", "sophiag", "muon"}) {
    RunConfig run;
    run.optimizer.newton_schulz_dtype = "float32";
    run.optimizer.newton_schulz_steps = 1;
    run.optimizer.newton_schulz_coefficients = {1.5, -0.5, 0};
    const OneRank alone(run);
    const ShardPlan shards(alone.mesh, ShardingKind::kNone);
    ParameterStore here = store(at::kCPU), there = store(guarded::device_of_tests());
    const auto setup = [&]() -> OptimizerSetup {
      const auto is_muon = std::string(name) == "muon";
      return {{{{.patterns = {"a.norm.weight"}, .optimizer = is_muon ? "sgd" : name},
                {.weight_decay = 0.1, .optimizer = name}},
               is_muon ? std::vector{declare_optimizer("sgd"), declare_optimizer("muon")}
                       : std::vector{declare_optimizer(name)}},
              configured_optimizers(run.optimizer).make};
    };
    OptimizerSet on_host(setup(), run.model, here, shards), on_device(setup(), run.model, there, shards);
    const auto options = at::TensorOptions().device(guarded::device_of_tests());
    const Tensor changed = at::zeros({1}, options.dtype(at::kLong));
    const auto step_there = [&](int64_t step, double scale) {
      const Update update{step, kRate, 1, {at::full({1}, scale, options.dtype(at::kFloat)), changed}};
      on_device.begin(update);
      on_device.apply(update, {0, there.flat_size()});
    };
    for (int64_t step = 1; step <= static_cast<int64_t>(kSteps); ++step) {
      for (ParameterStore* each : {&here, &there}) set_gradient(*each, static_cast<uint64_t>(step));
      if (on_host.second_backward(step)) on_host.learn_from_second(step, 10), on_device.learn_from_second(step, 10);
      const Update update{step, kRate, 0.5};
      on_host.begin(update);
      on_host.apply(update, {0, here.flat_size()});
      const int64_t waits = ops::transfer_counts().waits;
      step_there(step, 0.5);
      EXPECT_EQ(ops::transfer_counts().waits, waits) << name;
    }
    for (const auto& entry : here.table()) {
      const Tensor expected = here.master_copy(entry.name), off = (there.master_copy(entry.name) - expected).abs();
      const double largest = expected.abs().max().item<double>();
      // Muon's products are added in another order: the bound of one contracting iteration is that of
      // ops/newton_schulz_test.cpp, for 70 x 300, on either side.
      const double one = 70 * kernels::sum_error(300) / 2 + 1.5 * std::sqrt(70.0) * kernels::sum_error(70) * 70;
      const bool has_products = std::string(name) == "muon" && entry.extent.size() > 1;
      const double products = has_products ? 2 * one * 0.2 * std::sqrt(300.0) * kRate : 0;
      EXPECT_LE(off.max().item<double>(), kSteps * (0x1p-23 * (4 * kRate + largest) + products)) << name;
    }
    const Tensor weight = ops::fetch(there.compute()).clone();
    set_gradient(there, 9);
    step_there(4, std::nan(""));
    EXPECT_TRUE(same_bits(there.compute(), weight)) << name;
  }
}

TEST_P(OnGuarded, TheSumOfSquaresIsThatOfDoubles) {
  for (const bool kernels : {true, false}) {
    guarded::set_kernels(kernels);
    ParameterStore there = store(guarded::device_of_tests());
    set_gradient(there, 7);
    const double sum = ops::fetch_item<double>(ops::sum_of_squares(there.grad())),
                 exact = ops::fetch(there.grad()).to(at::kDouble).square().sum().item<double>();
    // Terms are exact; each of the additions rounds once.
    EXPECT_NEAR(sum, exact, 2 * exact * 0x1p-53 * static_cast<double>(there.flat_size()));
  }
}

}  // namespace
}  // namespace athanor::optim_device_test
