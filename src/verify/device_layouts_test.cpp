// Training by several ranks, each on a device that the host plays, compared with the same layout on the CPU.

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "base/testing/test_all.h"
#include "parallel/testing/small_layouts.h"
#include "verify/testing/device_layouts.h"

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

// Two layers are the fewest that two stages can share, and the third step is the first whose numbers depend on moments
// of more than one step. `make test-all` also takes more layers, steps and microbatches.
RunConfig config_of(const Case& test) {
  const bool of_test_all = test::is_of_test_all();
  const Degrees& degrees = test.degrees;
  RunConfig c = small_device_run(test.family, test.dtype);
  c.moe.dispatch = test.dispatch;
  c.moe.balance = test.balance;
  if (test.balance != "none") c.moe.balance_group = 2;  // sequences of two ranks
  c.model.num_hidden_layers = of_test_all ? 4 : 2;
  c.train.steps = of_test_all ? 4 : 3;
  c.train.global_batch_size = of_test_all ? 8 : 4;
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
    const std::string name = name_of(GetParam()) + (test::is_of_test_all() ? " of all" : "");
    const auto found = made.find(name);
    return found != made.end() ? found->second : made.emplace(name, run_earliest(config_, world_)).first->second;
  }
};
// Each family, type, sharding, dispatch and balance at least once, and each axis alone and with another.
const std::vector<Case> kDiagonal = {
    {"olmo", "bfloat16", {2, 2, 1, "hierarchical"}},
    {"olmoe", "bfloat16", {1, 2, 2, "ep_aware"}, "all_to_all_2d"},
    {"olmoe", "float32", {1, 4, 2, "optimizer"}, "allgather", "swipe"},
    {"qwen3_moe", "float32", {1, 2, 2, "none"}, "all_to_all", "capacity"},
    {"olmoe", "float32", {1, 2, 1, "none"}, "allgather", "forced_uniform"},
    {"llama", "float32", {1, 1, 1, "none", 2, 1}},
    {"qwen3", "float32", {1, 1, 1, "none", 1, 2}},
    {"qwen3_moe", "bfloat16", {1, 1, 1, "none", 2, 2}},
};
INSTANTIATE_TEST_SUITE_P(, OnDevices, ::testing::ValuesIn(kDiagonal),
                         [](const auto& each) { return name_of(each.param); });

INSTANTIATE_TEST_SUITE_P(TestAll, OnDevices,
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
  const double rounding = rounding_of(expected, config_, world_).difference;
  ASSERT_GT(rounding, 0);
  const LayoutTrace& found = earliest().trace;
  EXPECT_LE(largest_difference(expected, found), ops::test::rounding_bound(rounding, config_.model.hidden_size));
  EXPECT_EQ(expected.targets, found.targets);
  if (config_.train.dtype == "float32") {
    EXPECT_EQ(expected.choices, found.choices);
  }
}

// The latest order, and drawn ones; in `make test` one of them.
std::vector<Order> orders_for(const Case& test) {
  const Order latest{Order::Kind::kLatest}, drawn{Order::Kind::kDrawn, 1};
  if (test::is_of_test_all()) return {latest, drawn, {Order::Kind::kDrawn, 2}};
  return {test.dtype == "float32" ? latest : drawn};
}

TEST_P(OnDevices, TheOrderOfTheStreamsChangesNoBit) {
  for (const Order& order : orders_for(GetParam()))
    EXPECT_TRUE(earliest().trace.same_bits(train_on_devices(config_, world_, {.order = order})));
}

// As on a device that Athanor has no kernels for.
class OnDevicesWithoutKernels : public ::testing::TestWithParam<Case> {};
const auto kWithoutKernels =
    ::testing::Values(Case{"olmoe", "float32", {1, 2, 2, "ep_aware"}, "all_to_all", "swipe"},
                      Case{"qwen3_moe", "float32", {1, 2, 2, "none"}, "allgather", "capacity"});
INSTANTIATE_TEST_SUITE_P(, OnDevicesWithoutKernels, kWithoutKernels,
                         [](const auto& each) { return name_of(each.param); });
INSTANTIATE_TEST_SUITE_P(TestAll, OnDevicesWithoutKernels, kWithoutKernels,
                         [](const auto& each) { return name_of(each.param); });

TEST_P(OnDevicesWithoutKernels, TheirLossesDifferFromTheCpusByWhatRoundingMakesOfThem) {
  const RunConfig config = config_of(GetParam());
  const int world = GetParam().degrees.world();
  const LayoutTrace expected = train_on_cpus(config, world);
  const double rounding = rounding_of(expected, config, world).difference;
  guarded::set_kernels(false);
  const LayoutTrace found = train_on_devices(config, world, {.order = {Order::Kind::kDrawn, 5}});
  guarded::set_kernels(true);
  EXPECT_LE(largest_difference(expected, found), ops::test::rounding_bound(rounding, config.model.hidden_size));
  EXPECT_EQ(expected.choices, found.choices);
}

// Each optimizer in its form for devices. Sophia-G's labels are drawn there, in a second backward whose batch is one
// more copy.
class OnDevicesWithOtherOptimizers : public ::testing::TestWithParam<std::string> {
 protected:
  // Sparse, on four ranks. In `make test` only Muon, whose matrices are exchanged over both axes, takes all of them:
  // LAMB's norms are sums over tensor ranks, and the others treat each element alone.
  static Degrees degrees() {
    if (test::is_of_test_all() || GetParam() == "muon") return {1, 2, 2, "ep_aware", 2, 1};
    if (GetParam() == "lamb") return {1, 1, 1, "none", 2, 1};
    return {1, 2, 2, "ep_aware"};
  }
};
const auto kOtherOptimizers = ::testing::Values("sgd", "lamb", "sophiag", "muon");
INSTANTIATE_TEST_SUITE_P(, OnDevicesWithOtherOptimizers, kOtherOptimizers, [](const auto& each) { return each.param; });
INSTANTIATE_TEST_SUITE_P(TestAll, OnDevicesWithOtherOptimizers, kOtherOptimizers,
                         [](const auto& each) { return each.param; });

TEST_P(OnDevicesWithOtherOptimizers, TheirLossesDifferFromTheCpusByWhatRoundingMakesOfThemAndAStepWaitsOnce) {
  RunConfig config = config_of({"olmoe", "float32", degrees()});
  const int world = degrees().world();
  if (GetParam() == "sophiag") config.train.steps = 4;  // its second Hessian, in step 3, changes the numbers of step 4
  config.optimizer.name = GetParam();
  config.optimizer.newton_schulz_dtype = "float32";
  config.optimizer.hessian_interval = 2;
  const LayoutTrace expected = train_on_cpus(config, world);
  const double rounding = rounding_of(expected, config, world).difference;
  const LayoutTrace found = train_on_devices(config, world, {.order = {Order::Kind::kDrawn, 6}});
  EXPECT_LE(largest_difference(expected, found), ops::test::rounding_bound(rounding, config.model.hidden_size));
  EXPECT_EQ(found.transfers.waits, promised_transfers(config, world, config.moe.dispatch.word()).waits);
}

// The library of the guarded devices adds along the tree as well; nothing else differs.
class OnDevicesWithTreeSums : public ::testing::TestWithParam<Case> {};
const auto kTreeSums = ::testing::Values(Case{"qwen3_moe", "bfloat16", {1, 4, 2, "ep_aware"}},
                                         Case{"llama", "bfloat16", {1, 2, 1, "optimizer", 2, 1}});
INSTANTIATE_TEST_SUITE_P(, OnDevicesWithTreeSums, kTreeSums, [](const auto& each) { return name_of(each.param); });
INSTANTIATE_TEST_SUITE_P(TestAll, OnDevicesWithTreeSums, kTreeSums,
                         [](const auto& each) { return name_of(each.param); });

TEST_P(OnDevicesWithTreeSums, TheNumbersAreThoseOfALibraryThatAddsAlongTheTree) {
  RunConfig config = config_of(GetParam());
  const int world = GetParam().degrees.world();
  const LayoutTrace expected = train_on_devices(config, world, {});
  config.parallelism.device_sums = "tree";
  std::vector<Order> orders = {{Order::Kind::kDrawn, 4}};
  if (test::is_of_test_all()) orders.insert(orders.end(), {{}, {Order::Kind::kLatest}});
  for (const Order& order : orders) {
    const LayoutTrace found = train_on_devices(config, world, {.order = order});
    EXPECT_TRUE(expected.same_bits(found));
    EXPECT_EQ(expected.transfers.waits, found.transfers.waits);
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
  const ops::TransferCounts promised = promised_transfers(config_, world_, config_.moe.dispatch.word());
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
