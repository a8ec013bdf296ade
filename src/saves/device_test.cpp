// Training on the device that the host plays, compared with the CPU.

#include <gtest/gtest.h>

#include <tuple>

#include "base/testing/folder_test.h"
#include "base/testing/test_all.h"
#include "checkpoint/rotation.h"
#include "model/initialize.h"
#include "ops/testing/other_orders.h"
#include "ops/transfer.h"
#include "record/run_folder.h"
#include "saves/checkpointing.h"
#include "train/testing/batches.h"
#include "train/testing/device_case.h"
#include "train/train_step.h"

namespace athanor::train_device_test {
namespace {

namespace fs = std::filesystem;
using guarded::Order;

struct Trace {
  std::vector<double> numbers;  // losses and norms of all steps
  Tensor weights;               // at the end
  ops::TransferCounts transfers;
};

Trace train(const RunConfig& config, at::Device device, int64_t steps) {
  TrainState state(config, {}, {.device = device});
  initialize_parameters(config.model, 7, state.model.parameters);
  Trace trace;
  for (int64_t step = 0; step < steps; ++step) {
    const ops::TransferCounts before = ops::transfer_counts();
    const StepReport report = train_step(state, fixed_batch(config));
    trace.transfers = ops::transfer_counts() - before;
    EXPECT_EQ(report.verdict, Verdict::kApply);
    for (const double each : {report.parts.loss_sum, report.parts.aux_sum, report.parts.z_sum, report.grad_norm})
      trace.numbers.push_back(each);
  }
  trace.weights = ops::fetch(state.model.parameters.compute()).clone();
  return trace;
}

double largest_difference(const Trace& a, const Trace& b) {
  double largest = 0;
  for (size_t i = 0; i < a.numbers.size(); ++i)
    largest = std::max(largest, std::abs(a.numbers[i] - b.numbers[i]) / std::max(std::abs(a.numbers[i]), 1e-300));
  return largest;
}

// The tokens of fixed_batch end a document with 0, so that each sequence has several.
RunConfig in_documents(RunConfig config) {
  config.data.attention_scope = "document";
  return config;
}

class OnDevice : public ::testing::TestWithParam<std::tuple<std::string, std::string>> {
 protected:
  void TearDown() override {
    guarded::queues().set_order({});
    guarded::set_kernels(true);
  }
  RunConfig config() const { return small_device_run(std::get<0>(GetParam()), std::get<1>(GetParam())); }
};

// A step of one microbatch, where many steps are taken on the guarded device.
RunConfig with_one_microbatch(RunConfig config) {
  const bool is_guarded = guarded::device_of_tests().is_privateuseone();
  if (is_guarded && !test::is_of_test_all()) config.train.global_batch_size = config.train.micro_batch_size;
  return config;
}

using FamilyAndType = std::tuple<std::string, std::string>;
std::vector<FamilyAndType> all_cases() {
  std::vector<FamilyAndType> all;
  for (const char* family : {"olmo", "llama", "qwen3", "olmoe", "qwen3_moe", "gpt2"})
    for (const char* dtype : {"float32", "bfloat16"}) all.emplace_back(family, dtype);
  return all;
}
// Each family, in one of the types. A real device, which is much faster, takes all cases.
std::vector<FamilyAndType> cases_here() {
  if (!guarded::device_of_tests().is_privateuseone()) return all_cases();
  return {{"olmo", "float32"},   {"llama", "bfloat16"},    {"qwen3", "float32"},
          {"olmoe", "bfloat16"}, {"qwen3_moe", "float32"}, {"gpt2", "bfloat16"}};
}
std::string name_of(const testing::TestParamInfo<FamilyAndType>& each) {
  return std::get<0>(each.param) + "_" + std::get<1>(each.param);
}
INSTANTIATE_TEST_SUITE_P(, OnDevice, ::testing::ValuesIn(cases_here()), name_of);
INSTANTIATE_TEST_SUITE_P(TestAll, OnDevice, ::testing::ValuesIn(all_cases()), name_of);

// What rounding does to such a run is measured on the CPU, by runs whose products are added in other orders.
void expect_the_losses_of_the_cpu(const RunConfig& config, int64_t steps) {
  const Trace expected = train(config, at::kCPU, steps);
  const double rounding =
      ops::test::difference_of_paths([&] { return largest_difference(expected, train(config, at::kCPU, steps)); });
  ASSERT_GT(rounding, 0);
  const double bound = ops::test::rounding_bound(rounding, config.model.hidden_size);
  for (const bool kernels : {true, false}) {
    guarded::set_kernels(kernels);
    EXPECT_LE(largest_difference(expected, train(config, guarded::device_of_tests(), steps)), bound)
        << (kernels ? "with" : "without") << " kernels";
  }
}

TEST_P(OnDevice, TwentyStepsDifferFromTheCpusByWhatRoundingMakesOfThem) {
  expect_the_losses_of_the_cpu(with_one_microbatch(config()), 20);
}

void documents_differ_by_rounding(int64_t steps) {
  for (const char* dtype : {"float32", "bfloat16"}) {
    expect_the_losses_of_the_cpu(in_documents(small_device_run("llama", dtype)), steps);
    guarded::set_kernels(true);
  }
}
TEST(OnDeviceStep, DocumentsDifferFromTheCpusByWhatRoundingMakesOfThem) { documents_differ_by_rounding(4); }
TEST(TestAllOnDeviceStep, DocumentsDifferFromTheCpusByWhatRoundingMakesOfThem) { documents_differ_by_rounding(20); }

// Muon with QK-clip, whose bound is so low that it clips.
void optimizers_differ_by_rounding(int64_t steps, int64_t steps_of_sophiag) {
  for (const char* name : {"sgd", "lamb", "sophiag", "muon"}) {
    RunConfig config =
        with_one_microbatch(small_device_run(std::string(name) == "muon" ? "llama" : "olmoe", "float32"));
    config.optimizer.name = name;
    config.optimizer.newton_schulz_dtype = "float32";
    config.optimizer.hessian_interval = 4;
    if (config.optimizer.name == "muon") config.optimizer.qk_clip = 0.05;
    SCOPED_TRACE(name);
    expect_the_losses_of_the_cpu(config, config.optimizer.name == "sophiag" ? steps_of_sophiag : steps);
    guarded::set_kernels(true);
  }
}
// In six steps Sophia-G finds two Hessians and uses both.
TEST(OnDeviceStep, OtherOptimizersDifferFromTheCpusByWhatRoundingMakesOfThem) { optimizers_differ_by_rounding(3, 6); }
TEST(TestAllOnDeviceStep, OtherOptimizersDifferFromTheCpusByWhatRoundingMakesOfThem) {
  optimizers_differ_by_rounding(20, 20);
}

TEST_P(OnDevice, TheOrderOfTheStreamsChangesNoBit) {
  const Trace earliest = train(config(), guarded::device_of_tests(), 3);
  for (const Order& order :
       {Order{Order::Kind::kLatest}, Order{Order::Kind::kDrawn, 1}, Order{Order::Kind::kDrawn, 2}}) {
    guarded::queues().set_order(order);
    const Trace other = train(config(), guarded::device_of_tests(), 3);
    EXPECT_EQ(earliest.numbers, other.numbers);
    EXPECT_TRUE(same_bits(earliest.weights, other.weights));
  }
}

TEST_P(OnDevice, AStepIsOneCopyThereOneCopyBackAndOneWait) {
  const auto copies = guarded::copy_counts();
  const int64_t waits = guarded::queues().counts().waits;
  const auto counted = ops::transfer_counts();
  RunConfig odd = config();  // a width that libtorch's grouped product refuses
  odd.model.intermediate_size = 44;
  RunConfig clipped = config();
  clipped.optimizer.qk_clip = 0.05;
  for (const RunConfig& run : {config(), in_documents(config()), odd, clipped}) {
    const Trace trace = train(run, guarded::device_of_tests(), 3);
    EXPECT_EQ(trace.transfers.copies_to_device, 1);
    EXPECT_EQ(trace.transfers.copies_to_host, 1);
    EXPECT_EQ(trace.transfers.waits, 1);
  }
  // Nothing is copied or waited for that is not counted.
  const auto all = ops::transfer_counts() - counted;
  EXPECT_EQ(all.copies_to_device, guarded::copy_counts().to_device - copies.to_device);
  EXPECT_EQ(all.copies_to_host, guarded::copy_counts().to_host - copies.to_host);
  EXPECT_EQ(all.waits, guarded::queues().counts().waits - waits);
}

TEST(OnDeviceStep, ABatchThatWasSentAheadGivesTheSameBitsAndAnotherOneIsNotUsed) {
  guarded::queues().set_order({Order::Kind::kLatest});
  const RunConfig config = small_device_run("qwen3_moe", "bfloat16");
  Batch batches[4];
  for (Batch& each : batches) {
    each = fixed_batch(config);
    for (int32_t& token : each.tokens) token = (token * 5 + static_cast<int32_t>(&each - batches)) % 64;
    each.next.sources["data"].drawn = 4 * (&each - batches + 1);  // which batch it is
  }
  const auto losses = [&](const std::function<const Batch*(size_t)>& ahead) {
    TrainState state(config, {}, {.device = guarded::device_of_tests()});
    initialize_parameters(config.model, 7, state.model.parameters);
    std::vector<double> found;
    for (size_t step = 0; step < std::size(batches); ++step) {
      Step now(state, batches[step]);
      now.compute_gradients();
      now.update();
      const Batch* next = ahead ? ahead(step + 1) : nullptr;
      EXPECT_TRUE(now.may_send_ahead());
      if (next) now.send_ahead(*next);
      found.push_back(now.finish().parts.loss_sum);
      EXPECT_EQ(state.ahead.has_value(), ahead && ahead(step + 1));
    }
    return found;
  };
  const std::vector<double> expected = losses({});
  EXPECT_EQ(losses([&](size_t step) { return step < 4 ? &batches[step] : nullptr; }), expected);
  EXPECT_EQ(losses([&](size_t) { return &batches[0]; }), expected) << "what was sent is of another batch";
  guarded::queues().set_order({});
}

// In the latest order, whatever a step waits for too little is wrong.
TEST(OnDeviceStep, WithoutAnyOneOfItsWaitsTheNumbersAreWrong) {
  guarded::queues().set_order({Order::Kind::kLatest});
  const RunConfig config = small_device_run("qwen3_moe", "bfloat16");
  const auto second_loss = [&](int64_t skipped, int64_t& num_waits) {
    TrainState state(config, {}, {.device = guarded::device_of_tests()});
    initialize_parameters(config.model, 7, state.model.parameters);
    train_step(state, fixed_batch(config));
    guarded::queues().skip(skipped);
    const double loss = train_step(state, fixed_batch(config)).parts.loss_sum;
    num_waits = guarded::queues().skip(-1);
    guarded::queues().synchronize_all();
    return loss;
  };
  int64_t num_waits = 0, same = 0;
  const double expected = second_loss(-1, num_waits);
  ASSERT_GE(num_waits, 1);
  for (int64_t i = 0; i < num_waits; ++i)
    EXPECT_NE(second_loss(i, same), expected) << "wait " << i << " of " << num_waits;
  guarded::queues().set_order({});
}

TEST(OnDeviceStep, AStepThatTheGuardRefusesChangesNothing) {
  RunConfig config = small_device_run("olmoe", "bfloat16");
  config.moe.bias_update_rate = 0.01;
  config.moe.aux_scope = "global";
  TrainState state(config, {}, {.device = guarded::device_of_tests()});
  initialize_parameters(config.model, 7, state.model.parameters);
  train_step(state, fixed_batch(config));
  const Tensor share = ops::fetch(state.model.previous_share).clone(),
               bias = ops::fetch(state.model.router_bias).clone();
  state.model.parameters.weight("model.norm.weight").value.fill_(std::nan(""));
  const Tensor weights = ops::fetch(state.model.parameters.compute()).clone();
  const StepReport report = train_step(state, fixed_batch(config));
  EXPECT_EQ(report.verdict, Verdict::kRefuse);
  EXPECT_EQ(report.changed, 0);
  EXPECT_EQ(state.position.step, 1);
  EXPECT_TRUE(same_bits(ops::fetch(state.model.parameters.compute()), weights));
  EXPECT_TRUE(same_bits(ops::fetch(state.model.previous_share), share));
  EXPECT_TRUE(same_bits(ops::fetch(state.model.router_bias), bias));
}

class OnDeviceCheckpoints : public FolderTest {
 protected:
  std::unique_ptr<TrainState> state(const std::string& run, at::Device device) const {
    RunConfig config = small_device_run("olmoe", "bfloat16");
    config.moe.bias_update_rate = 0;
    config.moe.aux_scope = "global";
    config.train.run_dir = (folder_ / run).string();
    fs::create_directories(RunFolder{config.train.run_dir}.checkpoints());
    return std::make_unique<TrainState>(config, DataIdentity{}, TrainStateOptions{.device = device});
  }
  static void train(TrainState& state, int64_t steps) {
    for (int64_t i = 0; i < steps; ++i) train_step(state, fixed_batch(state.config));
  }
  static fs::path save(TrainState& state) {
    save_checkpoint(state);
    return RunFolder{state.config.train.run_dir}.checkpoints() / step_folder_name(state.position.step);
  }
  static void expect_equal(const TrainState& a, const TrainState& b) {
    for (const auto& entry : a.model.parameters.table())
      EXPECT_TRUE(same_bits(a.model.parameters.master_copy(entry.name), b.model.parameters.master_copy(entry.name)));
    for (const char* moment : {"exp_avg", "exp_avg_sq"}) {
      const auto of = [&](const TrainState& s) {
        return ops::fetch(s.optimizer.set.optimizers().front()->state(moment)).clone();
      };
      EXPECT_TRUE(same_bits(of(a), of(b))) << moment;
    }
    EXPECT_TRUE(same_bits(ops::fetch(a.model.previous_share).clone(), ops::fetch(b.model.previous_share).clone()));
  }
};

TEST_F(OnDeviceCheckpoints, MoveBetweenCpuAndDeviceWithAllBits) {
  const auto here = state("here", at::kCPU), there = state("there", guarded::device_of_tests()),
             back = state("back", at::kCPU);
  initialize_parameters(here->config.model, 7, here->model.parameters);
  train(*here, 2);
  load_checkpoint(*there, CheckpointReader::open(save(*here)));
  expect_equal(*here, *there);
  train(*there, 2);
  load_checkpoint(*back, CheckpointReader::open(save(*there)));
  expect_equal(*there, *back);
  EXPECT_EQ(back->position.step, 4);
}

TEST_F(OnDeviceCheckpoints, AResumedRunHasTheBitsOfOneThatWasNotInterrupted) {
  guarded::queues().set_order({Order::Kind::kDrawn, 4});
  const auto whole = state("whole", guarded::device_of_tests()), first = state("first", guarded::device_of_tests());
  for (TrainState* each : {whole.get(), first.get()})
    initialize_parameters(each->config.model, 7, each->model.parameters);
  train(*whole, 4);
  train(*first, 2);
  const fs::path saved = save(*first);
  const auto second = state("second", guarded::device_of_tests());
  load_checkpoint(*second, CheckpointReader::open(saved));
  train(*second, 2);
  expect_equal(*whole, *second);
  guarded::queues().set_order({});
}

TEST(OnDeviceStep, WhateverBalancesTheHostWaitsOnce) {
  for (const char* balance : {"none", "capacity", "swipe", "forced_uniform"}) {
    RunConfig config = small_device_run("olmoe", "bfloat16");
    config.moe.balance = balance;
    config.moe.router_noise = 0.1;
    const Trace trace = train(config, guarded::device_of_tests(), 2);
    EXPECT_EQ(trace.transfers.copies_to_device, 1) << balance;
    EXPECT_EQ(trace.transfers.copies_to_host, 1) << balance;
    EXPECT_EQ(trace.transfers.waits, 1) << balance;
  }
}

// A launch takes a few microseconds, whatever it computes. These are the numbers of a step of two layers and two
// microbatches; a change that lowers one lowers it here.
TEST(OnDeviceStep, LaunchesNoMoreThanThisManyKernels) {
  const std::pair<const char*, int64_t> most[] = {{"olmo", 232},  {"llama", 252},     {"qwen3", 284},
                                                  {"olmoe", 398}, {"qwen3_moe", 398}, {"gpt2", 494}};
  for (const auto& [family, launches] : most) {
    const RunConfig config = small_device_run(family, "bfloat16");
    TrainState state(config, {}, {.device = guarded::device_of_tests()});
    initialize_parameters(config.model, 7, state.model.parameters);
    train_step(state, fixed_batch(config));
    const int64_t before = guarded::queues().counts().launches;
    train_step(state, fixed_batch(config));
    EXPECT_LE(guarded::queues().counts().launches - before, launches) << family;
  }
}

TEST(OnDeviceStep, AStepBeyondTheLimitsChangesNothing) {
  const RunConfig config = small_device_run("olmoe", "bfloat16");
  TrainState state(config, {}, {.device = guarded::device_of_tests()});
  initialize_parameters(config.model, 7, state.model.parameters);
  const Tensor before = ops::fetch(state.model.parameters.compute()).clone();
  for (const StepLimits limits : {StepLimits{.loss = 1}, StepLimits{.grad_norm = 1e-4}}) {
    EXPECT_EQ(train_step(state, fixed_batch(config), limits).verdict, Verdict::kSpike);
    EXPECT_TRUE(at::equal(before, ops::fetch(state.model.parameters.compute()).clone()));
    EXPECT_EQ(state.position.step, 0);
    state.model.parameters.grad().zero_();
  }
  EXPECT_EQ(train_step(state, fixed_batch(config), {.loss = 100, .grad_norm = 1e4}).verdict, Verdict::kApply);
}

TEST(OnDeviceStep, RoutersOfEachKindCountWhatTheyCountOnTheCpu) {
  for (const char* balance : {"none", "capacity", "swipe", "forced_uniform"}) {
    for (const char* score : {"softmax", "sigmoid"}) {
      RunConfig config = small_device_run("olmoe", "float32");
      config.moe.balance = balance;
      config.model.router_score = score;
      config.moe.router_noise = 0.1;
      std::vector<RouterCounts> counts;
      for (const at::Device device : {at::Device(at::kCPU), guarded::device_of_tests()}) {
        TrainState state(config, {}, {.device = device});
        initialize_parameters(config.model, 7, state.model.parameters);
        counts.push_back(train_step(state, fixed_batch(config)).parts.routers);
      }
      for (Tensor RouterCounts::*each : RouterCounts::kCounts) {
        ASSERT_EQ((counts[0].*each).defined(), (counts[1].*each).defined());
        if ((counts[0].*each).defined()) {
          EXPECT_TRUE((counts[0].*each).equal(counts[1].*each)) << balance << " " << score;
        }
      }
    }
  }
}

}  // namespace
}  // namespace athanor::train_device_test
