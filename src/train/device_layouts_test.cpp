// Training by several ranks, each on a device that the host plays, compared with the same layout on the CPU.

#include <gtest/gtest.h>

#include <map>

#include "parallel/testing/small_layouts.h"
#include "train/testing/device_layouts.h"

namespace athanor::device_layouts_test {
namespace {

using guarded::Order;

struct Case {
  std::string family, dtype;
  Degrees degrees;
  std::string dispatch = "allgather", balance = "none";
};
std::string name_of(const Case& c) {
  std::string name = c.family + "_" + c.dtype + "_" + c.degrees.text();
  if (c.degrees.expert > 1) name += "_" + c.dispatch;
  if (c.balance != "none") name += "_" + c.balance;
  std::ranges::replace_if(
      name, [](char x) { return !std::isalnum(static_cast<unsigned char>(x)); }, '_');
  return name;
}

RunConfig config_of(const Case& test) {
  const Degrees& degrees = test.degrees;
  RunConfig c = small_device_run(test.family, test.dtype);
  c.moe.dispatch = test.dispatch;
  c.moe.balance = test.balance;
  if (test.balance != "none") c.moe.balance_group = 2;  // sequences of two ranks
  c.model.num_hidden_layers = 4;
  c.train.steps = 4;
  c.train.global_batch_size = 8;
  c.train.micro_batch_size = 1;
  set_degrees(c, degrees);
  c.parallelism.sequence_parallel = degrees.tensor > 1;
  c.parallelism.bucket_mb = 0.02;  // several buckets of each kind
  c.metrics.noise_scale_interval = 1;
  return c;
}

int64_t waits_of_all_devices() {
  int64_t waits = 0;
  for (int device = 0; device < guarded::kMostDevices; ++device) waits += guarded::queues(device).counts().waits;
  return waits;
}

// A training on devices in the order in which everything is done at once, and what the process copied and waited for
// meanwhile.
struct EarliestRun {
  LayoutTrace trace;
  ops::TransferCounts counted, seen;  // by the code that copies and waits, and by the devices
};

EarliestRun run_earliest(const RunConfig& config, int world) {
  const auto copies = guarded::copy_counts();
  const int64_t waits = waits_of_all_devices();
  const auto counted = ops::transfer_counts();
  EarliestRun run{train_on_devices(config, world, {}), {}, {}};
  run.counted = ops::transfer_counts() - counted;
  run.seen.copies_to_device = guarded::copy_counts().to_device - copies.to_device;
  run.seen.copies_to_host = guarded::copy_counts().to_host - copies.to_host;
  run.seen.waits = waits_of_all_devices() - waits;
  return run;
}

class OnDevices : public ::testing::TestWithParam<Case> {
 protected:
  const RunConfig config_ = config_of(GetParam());
  const int world_ = GetParam().degrees.world();

  // Every test of a case compares with the same run, which the first of them makes.
  const EarliestRun& earliest() const {
    static std::map<std::string, EarliestRun> made;
    const std::string name = name_of(GetParam());
    const auto found = made.find(name);
    return found != made.end() ? found->second : made.emplace(name, run_earliest(config_, world_)).first->second;
  }
};
INSTANTIATE_TEST_SUITE_P(, OnDevices,
                         ::testing::Values(Case{"llama", "float32", {1, 2, 1, "none"}},
                                           Case{"llama", "bfloat16", {1, 4, 1, "optimizer"}},
                                           Case{"olmo", "bfloat16", {2, 2, 1, "hierarchical"}},
                                           Case{"olmoe", "float32", {1, 2, 1, "ep_aware"}},
                                           Case{"olmoe", "float32", {1, 2, 2, "optimizer"}},
                                           Case{"qwen3_moe", "bfloat16", {1, 4, 4, "optimizer"}, "all_to_all"},
                                           Case{"olmoe", "bfloat16", {1, 2, 2, "ep_aware"}, "all_to_all_2d"},
                                           Case{"olmoe", "float32", {1, 4, 2, "optimizer"}, "allgather", "swipe"},
                                           Case{"qwen3_moe", "float32", {1, 2, 2, "none"}, "all_to_all", "capacity"},
                                           Case{"olmoe", "float32", {1, 2, 1, "none"}, "allgather", "forced_uniform"},
                                           Case{"llama", "float32", {1, 1, 1, "none", 2, 1}},
                                           Case{"olmoe", "bfloat16", {1, 2, 1, "optimizer", 2, 1}},
                                           Case{"qwen3", "float32", {1, 1, 1, "none", 1, 2}},
                                           Case{"qwen3_moe", "bfloat16", {1, 2, 1, "optimizer", 2, 2}}),
                         [](const auto& each) { return name_of(each.param); });

TEST_P(OnDevices, TheirLossesDifferFromTheCpusByWhatRoundingMakesOfThem) {
  const LayoutTrace expected = train_on_cpus(config_, world_);
  const double rounding = rounding_of(expected, config_, world_);
  ASSERT_GT(rounding, 0);
  const LayoutTrace& found = earliest().trace;
  EXPECT_LE(largest_difference(expected, found), ops::test::rounding_bound(rounding, config_.model.hidden_size));
  EXPECT_EQ(expected.targets, found.targets);
  if (config_.train.dtype == "float32") {
    EXPECT_EQ(expected.choices, found.choices);
  }
}

TEST_P(OnDevices, TheOrderOfTheStreamsChangesNoBit) {
  for (const Order& order : {Order{Order::Kind::kLatest}, Order{Order::Kind::kDrawn, 1}, Order{Order::Kind::kDrawn, 2}})
    EXPECT_TRUE(earliest().trace.same_bits(train_on_devices(config_, world_, {.order = order})));
}

// As on a device that Athanor has no kernels for.
TEST(OnDevicesWithoutKernels, TheirLossesDifferFromTheCpusByWhatRoundingMakesOfThem) {
  for (const Case& test : {Case{"olmoe", "float32", {1, 2, 2, "ep_aware"}, "all_to_all", "swipe"},
                           Case{"qwen3_moe", "float32", {1, 2, 2, "none"}, "allgather", "capacity"}}) {
    const RunConfig config = config_of(test);
    const int world = test.degrees.world();
    const LayoutTrace expected = train_on_cpus(config, world);
    const double rounding = rounding_of(expected, config, world);
    guarded::set_kernels(false);
    const LayoutTrace found = train_on_devices(config, world, {.order = {Order::Kind::kDrawn, 5}});
    guarded::set_kernels(true);
    EXPECT_LE(largest_difference(expected, found), ops::test::rounding_bound(rounding, config.model.hidden_size))
        << name_of(test);
    EXPECT_EQ(expected.choices, found.choices) << name_of(test);
  }
}

// Each optimizer in its form for devices. Sophia-G's labels are drawn there, in a second backward whose batch is one
// more copy.
TEST(OnDevicesWithOtherOptimizers, TheirLossesDifferFromTheCpusByWhatRoundingMakesOfThemAndAStepWaitsOnce) {
  for (const char* name : {"sgd", "lamb", "sophiag", "muon"}) {
    RunConfig config = config_of({"olmoe", "float32", {1, 2, 2, "ep_aware", 2, 1}});
    config.optimizer.name = name;
    config.optimizer.newton_schulz_dtype = "float32";
    config.optimizer.hessian_interval = 2;
    const LayoutTrace expected = train_on_cpus(config, 4);
    const double rounding = rounding_of(expected, config, 4);
    const LayoutTrace found = train_on_devices(config, 4, {.order = {Order::Kind::kDrawn, 6}});
    EXPECT_LE(largest_difference(expected, found), ops::test::rounding_bound(rounding, config.model.hidden_size))
        << name;
    EXPECT_EQ(found.transfers.waits, promised_transfers(config, 4, config.moe.dispatch).waits) << name;
  }
}

// The library of the played devices adds along the tree as well; nothing else differs.
TEST(OnDevicesWithTreeSums, TheNumbersAreThoseOfALibraryThatAddsAlongTheTree) {
  for (const Case& test : {Case{"qwen3_moe", "bfloat16", {1, 4, 2, "ep_aware"}},
                           Case{"llama", "bfloat16", {1, 2, 1, "optimizer", 2, 1}}}) {
    RunConfig config = config_of(test);
    const int world = test.degrees.world();
    const LayoutTrace expected = train_on_devices(config, world, {});
    config.parallelism.device_sums = "tree";
    for (const Order& order : {Order{}, Order{Order::Kind::kLatest}, Order{Order::Kind::kDrawn, 4}}) {
      const LayoutTrace found = train_on_devices(config, world, {.order = order});
      EXPECT_TRUE(expected.same_bits(found)) << name_of(test);
      EXPECT_EQ(expected.transfers.waits, found.transfers.waits) << name_of(test);
    }
  }
}

// As on hosts, what is not sent when backward ends delays the update; the best of a few steps counts.
TEST(OnDevicesReduction, MostOfTheGradientsIsSummedBeforeBackwardEnds) {
  for (const std::string sums : {"library", "tree"}) {
    RunConfig config = config_of({"llama", "float32", {1, 2, 1, "optimizer"}});
    config.model.num_hidden_layers = 8;
    config.train.global_batch_size = config.train.micro_batch_size * 2;
    config.parallelism.device_sums = sums;
    double best = 0;  // on a busy machine a rank may have to wait for a processor in all steps of a try
    for (int i = 0; i < 40 && best <= 0.5; ++i) best = train_on_devices(config, 2, {}).best_share;
    EXPECT_GT(best, 0.5) << sums;
  }
}

// all_to_all fetches its numbers of rows, once for each sparse layer and microbatch.
TEST_P(OnDevices, AStepIsOneCopyThereOneCopyBackAndOneWaitOnEachRankExceptForRowsOfAllToAll) {
  const EarliestRun& run = earliest();
  const ops::TransferCounts promised = promised_transfers(config_, world_, config_.moe.dispatch);
  EXPECT_EQ(run.trace.transfers.copies_to_device, promised.copies_to_device);
  EXPECT_EQ(run.trace.transfers.copies_to_host, promised.copies_to_host);
  EXPECT_EQ(run.trace.transfers.waits, promised.waits);
  // Nothing is copied or waited for that is not counted, except the wait at the end of a rank's thread, and its last.
  EXPECT_EQ(run.counted.copies_to_device, run.seen.copies_to_device);
  EXPECT_EQ(run.counted.copies_to_host, run.seen.copies_to_host);
  EXPECT_EQ(run.counted.waits + 2 * world_, run.seen.waits);
}

}  // namespace
}  // namespace athanor::device_layouts_test
