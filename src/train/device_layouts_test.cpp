// Training by several ranks, each on a device that the host plays, compared with the same layout on the CPU.

#include <gtest/gtest.h>

#include "comm/testing/played_groups.h"
#include "model/initialize.h"
#include "ops/testing/on_path.h"
#include "ops/transfer.h"
#include "parallel/testing/small_layouts.h"
#include "train/testing/device_case.h"
#include "train/testing/fixed_batch.h"
#include "train/train_step.h"

namespace athanor::device_layouts_test {
namespace {

using guarded::Order;

constexpr int64_t kSteps = 4;

RunConfig config_of(const std::string& family, const std::string& dtype, const Degrees& degrees,
                    const std::string& dispatch) {
  RunConfig c = small_device_run(family, dtype);
  c.moe.dispatch = dispatch;
  c.model.num_hidden_layers = 4;
  c.train.global_batch_size = 8;
  c.train.micro_batch_size = 1;
  set_degrees(c, degrees);
  c.parallelism.sequence_parallel = degrees.tensor > 1;
  c.parallelism.bucket_mb = 0.02;  // several buckets of each kind
  return c;
}

// What rank 0 reports.
struct Trace {
  std::vector<double> numbers;
  std::vector<int64_t> counts;
  ops::TransferCounts transfers;  // sums over all ranks, in the last step
  double best_share = 0;          // ReductionTrace::share
};

Trace train(TrainState& state, const RunConfig& config) {
  initialize_parameters(config.model, 7, state.model.parameters);
  Trace trace;
  for (int64_t step = 0; step < kSteps; ++step) {
    state.model.mesh.world().all().barrier();
    const ops::TransferCounts before = ops::transfer_counts();
    state.model.mesh.world().all().barrier();
    const StepReport report = train_step(state, fixed_batch(config));
    state.model.mesh.world().all().barrier();
    trace.transfers = ops::transfer_counts() - before;
    for (const double each : {report.parts.loss_sum, report.parts.aux_sum, report.parts.z_sum, report.grad_norm})
      trace.numbers.push_back(each);
    trace.numbers.insert(trace.numbers.end(), report.rank_norms.ranks.begin(), report.rank_norms.ranks.end());
    trace.numbers.insert(trace.numbers.end(), report.rank_norms.experts.begin(), report.rank_norms.experts.end());
    trace.counts.push_back(report.parts.num_targets);
    trace.best_share = std::max(trace.best_share, report.reduction.share().value_or(0));
  }
  state.model.gatherer.wait_all();
  return trace;
}

Trace train_on_cpus(const RunConfig& config, int world_size) {
  Trace trace;
  comm::run_ranks(world_size, [&](comm::World& world) {
    Mesh mesh(Layout(config, world_size), world);
    TrainState state(config, {}, mesh, {});
    const Trace own = train(state, config);
    if (world.rank() == 0) trace = own;
  });
  return trace;
}

Trace train_on_devices(const RunConfig& config, int world_size, const Order& order) {
  Trace trace;
  comm::run_device_ranks(world_size, [&](comm::World& world, at::Device device) {
    guarded::queues().set_order(order);
    Mesh mesh(Layout(config, world_size), world);
    mesh.use(device, config.parallelism.device_sums);
    TrainState state(config, {}, mesh, {.device = device});
    const Trace own = train(state, config);
    if (world.rank() == 0) trace = own;
    guarded::queues().synchronize_all();
    world.all().barrier();
    guarded::queues().set_order({});
  });
  return trace;
}

double largest_difference(const Trace& a, const Trace& b) {
  EXPECT_EQ(a.numbers.size(), b.numbers.size());
  double largest = 0;
  for (size_t i = 0; i < std::min(a.numbers.size(), b.numbers.size()); ++i)
    largest = std::max(largest, std::abs(a.numbers[i] - b.numbers[i]) / std::max(std::abs(a.numbers[i]), 1e-300));
  return largest;
}

struct Case {
  std::string family, dtype;
  Degrees degrees;
  std::string dispatch = "allgather";
};
std::string name_of(const Case& c) {
  std::string name = c.family + "_" + c.dtype + "_" + c.degrees.text();
  if (c.degrees.expert > 1) name += "_" + c.dispatch;
  std::ranges::replace_if(
      name, [](char x) { return !std::isalnum(static_cast<unsigned char>(x)); }, '_');
  return name;
}

class OnDevices : public ::testing::TestWithParam<Case> {
 protected:
  const RunConfig config_ = config_of(GetParam().family, GetParam().dtype, GetParam().degrees, GetParam().dispatch);
  const int world_ = GetParam().degrees.world();
};
INSTANTIATE_TEST_SUITE_P(, OnDevices,
                         ::testing::Values(Case{"llama", "float32", {1, 2, 1, "none"}},
                                           Case{"llama", "bfloat16", {1, 4, 1, "optimizer"}},
                                           Case{"olmo", "bfloat16", {2, 2, 1, "hierarchical"}},
                                           Case{"olmoe", "float32", {1, 2, 1, "ep_aware"}},
                                           Case{"olmoe", "float32", {1, 2, 2, "optimizer"}},
                                           Case{"qwen3_moe", "bfloat16", {1, 4, 4, "optimizer"}, "all_to_all"},
                                           Case{"olmoe", "bfloat16", {1, 2, 2, "ep_aware"}, "all_to_all_2d"},
                                           Case{"llama", "float32", {1, 1, 1, "none", 2, 1}},
                                           Case{"olmoe", "bfloat16", {1, 2, 1, "optimizer", 2, 1}},
                                           Case{"qwen3", "float32", {1, 1, 1, "none", 1, 2}},
                                           Case{"qwen3_moe", "bfloat16", {1, 2, 1, "optimizer", 2, 2}}),
                         [](const auto& each) { return name_of(each.param); });

// As for one device (device_test.cpp): two runs differ by at most four times what two CPU runs differ by whose products
// are added in other orders.
TEST_P(OnDevices, TheirLossesDifferFromTheCpusByWhatRoundingMakesOfThem) {
  const Trace expected = train_on_cpus(config_, world_);
  double rounding = 0;
  for (const auto path : {kernels::MatmulPath::kAvx2, kernels::MatmulPath::kLibrary}) {
    if (!kernels::has_path(path)) continue;
    const ops::test::OnPath on(path);
    rounding = std::max(rounding, largest_difference(expected, train_on_cpus(config_, world_)));
  }
  ASSERT_GT(rounding, 0);
  const Trace found = train_on_devices(config_, world_, {});
  EXPECT_LE(largest_difference(expected, found), 4 * rounding);
  EXPECT_EQ(expected.counts, found.counts);
}

TEST_P(OnDevices, TheOrderOfTheStreamsChangesNoBit) {
  const Trace earliest = train_on_devices(config_, world_, {});
  for (const Order& order : {Order{Order::Kind::kLatest}, Order{Order::Kind::kDrawn, 1}, Order{Order::Kind::kDrawn, 2}})
    EXPECT_EQ(earliest.numbers, train_on_devices(config_, world_, order).numbers);
}

// The library of the played devices adds along the tree as well; nothing else differs.
TEST(OnDevicesWithTreeSums, TheNumbersAreThoseOfALibraryThatAddsAlongTheTree) {
  for (const auto& [family, degrees] :
       {std::pair<std::string, Degrees>{"qwen3_moe", {1, 4, 2, "ep_aware"}}, {"llama", {1, 2, 1, "optimizer", 2, 1}}}) {
    RunConfig config = config_of(family, "bfloat16", degrees, "allgather");
    const Trace expected = train_on_devices(config, degrees.world(), {});
    config.parallelism.device_sums = "tree";
    for (const Order& order : {Order{}, Order{Order::Kind::kLatest}, Order{Order::Kind::kDrawn, 4}}) {
      const Trace found = train_on_devices(config, degrees.world(), order);
      EXPECT_EQ(expected.numbers, found.numbers) << family;
      EXPECT_EQ(expected.transfers.waits, found.transfers.waits) << family;
    }
  }
}

// As on hosts, what is not sent when backward ends delays the update; the best of a few steps counts.
TEST(OnDevicesReduction, MostOfTheGradientsIsSummedBeforeBackwardEnds) {
  for (const std::string sums : {"library", "tree"}) {
    RunConfig config = config_of("llama", "float32", {1, 2, 1, "optimizer"}, "allgather");
    config.model.num_hidden_layers = 8;
    config.train.global_batch_size = config.train.micro_batch_size * 2;
    config.parallelism.device_sums = sums;
    EXPECT_GT(train_on_devices(config, 2, {}).best_share, 0.5) << sums;
  }
}

int64_t waits_of_all_devices() {
  int64_t waits = 0;
  for (int device = 0; device < guarded::kMostDevices; ++device) waits += guarded::queues(device).counts().waits;
  return waits;
}

// all_to_all fetches its numbers of rows, once for each hop of each sparse layer and microbatch.
TEST_P(OnDevices, AStepIsOneCopyThereOneCopyBackAndOneWaitOnEachRankExceptForRowsOfAllToAll) {
  const auto copies = guarded::copy_counts();
  const int64_t waits = waits_of_all_devices();
  const auto counted = ops::transfer_counts();
  const auto transfers = train_on_devices(config_, world_, {}).transfers;
  EXPECT_EQ(transfers.copies_to_device, world_);
  const int64_t hops = GetParam().dispatch == "all_to_all" ? 1 : GetParam().dispatch == "all_to_all_2d" ? 2 : 0;
  const int64_t fetches = hops * Layout(config_, world_).microbatches() * config_.model.num_sparse_layers();
  EXPECT_EQ(transfers.copies_to_host, world_ * (1 + fetches));
  EXPECT_EQ(transfers.waits, world_ * (1 + fetches));
  // Nothing is copied or waited for that is not counted, except the wait at the end of a rank's thread, and its last.
  const auto all = ops::transfer_counts() - counted;
  EXPECT_EQ(all.copies_to_device, guarded::copy_counts().to_device - copies.to_device);
  EXPECT_EQ(all.copies_to_host, guarded::copy_counts().to_host - copies.to_host);
  EXPECT_EQ(all.waits + 2 * world_, waits_of_all_devices() - waits);
}

}  // namespace
}  // namespace athanor::device_layouts_test
