// Faults of a step on several devices, planted on devices that the host plays: each is named, or changes numbers.

#include <gtest/gtest.h>

#include <map>

#include "base/error.h"
#include "base/testing/test_all.h"
#include "parallel/testing/small_layouts.h"
#include "verify/plants/names.h"
#include "verify/testing/device_layouts.h"
#include "watch/device_watch.h"

namespace athanor::device_faults_test {
namespace {

using namespace std::chrono_literals;
using comm::guarded_ways;
using guarded::Order;
using Copies = comm::GuardedWays::Copies;

const Order kLatest{Order::Kind::kLatest};

RunConfig config_of(const Degrees& degrees, const std::string& dispatch = "all_to_all") {
  RunConfig c = small_device_run("olmoe", "float32");
  c.model.hidden_size = 32;
  c.model.intermediate_size = 16;
  c.model.tie_word_embeddings = degrees.pipeline > 1;
  c.data.seq_len = 8;
  c.train.steps = 2;
  c.train.micro_batch_size = 1;
  c.train.global_batch_size = 2 * degrees.replicate * degrees.shard;
  c.moe.dispatch = dispatch;
  c.moe.router_z_loss_coef = 0.01;
  c.optimizer.warmup_steps = 0;
  c.parallelism.bucket_mb = 0.01;
  set_degrees(c, degrees);
  return c;
}

class OnDevicesWithFaults : public ::testing::Test {
 protected:
  void TearDown() override {
    guarded_ways() = {};
    for (int device = 0; device < guarded::kMostDevices; ++device) guarded::queues(device).skip_host_wait(-1);
  }
};

struct OnDevicesPlanted : ::testing::TestWithParam<plants::PlantName> {};
std::string name_of(const ::testing::TestParamInfo<plants::PlantName>& each) {
  std::string name(each.param.name);
  std::ranges::replace(name, '.', '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(, OnDevicesPlanted, ::testing::ValuesIn(plants::kPlantNames), name_of);
INSTANTIATE_TEST_SUITE_P(TestAll, OnDevicesPlanted, ::testing::ValuesIn(plants::kPlantNames), name_of);

// A wrong update shows in the numbers of the next step; some are wrong from the second step on.
constexpr int64_t kStepsOfOptimizers = 3;

RunConfig layout_for(const plants::PlantName& named) {
  const std::string_view plant = named.name;
  const bool tensor = plant.starts_with("tensor") || plant.ends_with("tensor_ranks") || plant.starts_with("sequence");
  // The fewest ranks that the fault needs. In `make test-all` experts are on ranks that share them, too.
  const int data = test::is_of_test_all() || plant == "muon.crossed_parts" ? 4 : 2;
  Degrees degrees{1, data, 2, "none"};
  if (tensor) degrees = {1, 1, 1, "none", 2, 1};
  if (plant.starts_with("pipeline")) degrees = {1, 1, 1, "none", 1, 2};
  if (!named.optimizer.empty()) degrees = {1, data, 2, "ep_aware"};  // ranks own parts, which they exchange
  RunConfig config = config_of(degrees);
  config.parallelism.sequence_parallel = plant.starts_with("sequence");
  if (!named.optimizer.empty()) {
    config.optimizer.name = named.optimizer;
    config.train.steps = kStepsOfOptimizers;
    // Each step has a second backward, and few elements are clipped, so that Hessians change updates.
    if (named.optimizer == "sophiag") config.optimizer.hessian_interval = 1, config.optimizer.rho = 1e4;
  }
  return config;
}

// Faults that need the same layout and optimizer are compared with the same run, which the first of them makes.
const LayoutTrace& without_fault(const RunConfig& config, int ranks) {
  static std::map<std::string, LayoutTrace> made;
  const auto& p = config.parallelism;
  const std::string name =
      fmt::format("{} {} {} {} {} {}", config.optimizer.name, p.sharding.word(), p.data_parallel_shard_degree,
                  p.tensor_parallel_degree, p.pipeline_parallel_degree, p.sequence_parallel);
  const auto found = made.find(name);
  return found != made.end() ? found->second : made.emplace(name, train_on_devices(config, ranks, {})).first->second;
}

// `verify` names it there by the same differences as on CPUs; here it is enough that there are some.
TEST_P(OnDevicesPlanted, ChangesTheNumbersOfAStep) {
  const RunConfig config = layout_for(GetParam());
  const auto& p = config.parallelism;
  const auto ranks =
      static_cast<int>(p.data_parallel_shard_degree * p.tensor_parallel_degree * p.pipeline_parallel_degree);
  const LayoutTrace& expected = without_fault(config, ranks);
  const LayoutTrace found = train_on_devices(config, ranks, {.plant = std::string(GetParam().name)});
  EXPECT_GT(found.times_planted, 0);
  EXPECT_FALSE(found.same_bits(expected)) << GetParam().does;
}

// For runs with a fault, in which ranks may wait for each other in vain. Those without one may wait for minutes.
constexpr auto kSoon = 5s;

// Returns whether a training in one of the orders has other bits than `expected`, or fails.
bool shows(const RunConfig& config, int ranks, const LayoutTrace& expected, std::chrono::milliseconds timeout = 5min) {
  for (const Order& order : {kLatest, Order{Order::Kind::kDrawn, 1}, Order{Order::Kind::kDrawn, 2}}) {
    const LayoutRun run{.order = order, .timeout = timeout};
    try {
      if (!train_on_devices(config, ranks, run).same_bits(expected)) return true;
    } catch (const std::exception&) {
      return true;
    }
  }
  return false;
}

TEST_F(OnDevicesWithFaults, AMissingEventBeforeSendsChangesTheNumbers) {
  const RunConfig config = config_of({1, 1, 1, "none", 1, 2});
  const LayoutTrace expected = train_on_devices(config, 2, {});
  EXPECT_FALSE(shows(config, 2, expected));
  guarded_ways().no_event_before_sends = true;
  EXPECT_TRUE(shows(config, 2, expected, kSoon));
}

TEST_F(OnDevicesWithFaults, ABufferThatIsUsedAgainBeforeItsCollectiveHasEndedChangesTheNumbers) {
  const RunConfig config = config_of({1, 2, 2, "optimizer"}, "allgather");
  const LayoutTrace expected = train_on_devices(config, 2, {});
  guarded_ways().copies = Copies::kKept;
  EXPECT_FALSE(shows(config, 2, expected));
  guarded_ways().copies = Copies::kReused;
  EXPECT_TRUE(shows(config, 2, expected, kSoon));
}

// The first waits of a step's host are those for the numbers of rows.
TEST_F(OnDevicesWithFaults, NumbersOfRowsThatAreReadTooEarlyAreNamed) {
  const RunConfig config = config_of({1, 2, 2, "none"});
  const LayoutTrace expected = train_on_devices(config, 2, {.order = kLatest, .timeout = 5min});
  LayoutRun how{.order = kLatest, .timeout = kSoon};
  for (int64_t wait = 0; wait < 4; ++wait) {  // two layers, two microbatches
    how.before_last_step = [&](int rank) {
      if (rank == 1) guarded::queues().skip_host_wait(wait);
    };
    EXPECT_THROW(train_on_devices(config, 2, how), std::exception) << "wait " << wait;
  }
}

// Two ranks call two groups, each rank one of them first if `differ`. Returns what rank 0 is told; empty: it has ended.
std::string told_of_groups(bool differ) {
  RunConfig config = config_of({1, 2, 1, "none"});
  std::string told;
  comm::WorldOptions options;
  options.timeout = 5min;
  const double seconds = differ ? 0.5 : 300;  // they never end if ranks differ, and soon if they do not
  comm::run_device_ranks(
      2,
      [&](comm::World& world, at::Device device) {
        Mesh mesh(Layout(config, 2), world);
        mesh.use(device);
        DeviceWatch watch(mesh, device, seconds);
        const at::Tensor x = at::ones({8}).to(device), y = at::ones({8}).to(device);
        comm::Communicator &data = mesh.group(GroupKind::kData), &shard = mesh.group(GroupKind::kShard);
        comm::Pending first, second;
        if (differ && world.rank() == 1) {
          second = shard.all_reduce(y), first = data.all_reduce(x);
        } else {
          first = data.all_reduce(x), second = shard.all_reduce(y);
        }
        first.wait(), second.wait();
        watch.step_is_queued();
        try {
          ops::fetch(x + y);
        } catch (const CommError& error) {
          if (world.rank() == 0) told = error.what();
          guarded::queues().forget_all();
        }
      },
      options);
  return told;
}

TEST_F(OnDevicesWithFaults, TwoGroupsThatRanksEnterInDifferentOrdersAreNamedAfterTheTimeout) {
  guarded_ways().one_at_a_time = true;
  EXPECT_EQ(told_of_groups(false), "");
  const std::string text = told_of_groups(true);
  EXPECT_NE(text.find("guarded:0 has not completed all_reduce of 32 bytes"), text.npos) << text;
  EXPECT_NE(text.find("of group data after"), text.npos) << text;
}

}  // namespace
}  // namespace athanor::device_faults_test
