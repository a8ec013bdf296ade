// The benchmarks on the device that the host plays: they verify there, and state what a step makes the device do.

#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "base/core_entry.h"
#include "base/testing/folder_test.h"
#include "bench/arguments.h"
#include "bench/comm.h"
#include "bench/comm_timer.h"
#include "bench/timer.h"
#include "comm/testing/guarded_groups.h"
#include "train/testing/device_case.h"

ATHANOR_CORE_ENTRY(bench_gemm);
ATHANOR_CORE_ENTRY(bench_moe);
ATHANOR_CORE_ENTRY(bench_optimizer);
ATHANOR_CORE_ENTRY(bench_step);

namespace athanor::bench_device_test {
namespace {

class OnDeviceBench : public FolderTest {
 protected:
  void SetUp() override {
    FolderTest::SetUp();
    guarded::offer(true);
  }
  void TearDown() override {
    guarded::offer(false);
    guarded::queues().set_order({});
    FolderTest::TearDown();
  }
  void verify_all(const std::string& gemm_type, const std::string& moe_type, const std::string& optimizer_type);
  // Runs a benchmark and returns its results by name.
  template <class Arguments>
  std::map<std::string, nlohmann::json> results(int (*entry)(const void*), Arguments given) {
    given.rounds = 1;
    given.json = (folder_ / "results.json").string();
    EXPECT_EQ(entry(&given), 0);
    std::map<std::string, nlohmann::json> named;
    for (const auto& each : nlohmann::json::parse(read_file(given.json))) {
      EXPECT_EQ(each.at("device"), "guarded:0");
      named[each.at("name")] = each;
    }
    return named;
  }
};

// A lap that did not wait would end before the device has begun.
TEST_F(OnDeviceBench, ALapEndsWhenTheDeviceIsDone) {
  guarded::queues().set_order({guarded::Order::Kind::kLatest});
  const at::Tensor x = guarded::to_device(at::ones({4}));
  bench::Laps laps(1, guarded::kDevice);
  bool ran = false;
  guarded::queues().submit(guarded::current_stream(), "work", [&] { ran = true; });
  laps.end(0);
  EXPECT_TRUE(ran);
  ran = false;
  guarded::queues().submit(guarded::current_stream(), "work", [&] { ran = true; });
  laps.skip();
  EXPECT_TRUE(ran);
}

// Verifies in these types; "": in both.
void OnDeviceBench::verify_all(const std::string& gemm_type, const std::string& moe_type,
                               const std::string& optimizer_type) {
  guarded::queues().set_order({guarded::Order::Kind::kDrawn, 2});
  BenchGemmArguments gemm;
  gemm.dtype = gemm_type;
  gemm.any_shape = true;
  gemm.experts = 3, gemm.rows = 8, gemm.k = 32, gemm.n = 16;
  EXPECT_TRUE(results(&athanor_core_bench_gemm, gemm).contains("grouped weight gradient"));
  BenchMoeArguments moe;
  moe.dtype = moe_type;
  moe.any_shape = true;
  moe.tokens = 64, moe.hidden = 32, moe.ffn = 16, moe.experts = 4, moe.topk = 2;
  EXPECT_TRUE(results(&athanor_core_bench_moe, moe).contains("moe, experts"));
  BenchOptimizerArguments optimizer;
  optimizer.dtype = optimizer_type;
  optimizer.parameters = 1000;
  EXPECT_TRUE(results(&athanor_core_bench_optimizer, optimizer).contains("adamw"));
}

TEST_F(OnDeviceBench, ProductsExpertsAndTheOptimizerAreVerifiedThere) { verify_all("bfloat16", "float32", "float32"); }

// Also an optimizer that is measured with AdamW, whose smallest model has 17 million parameters.
class TestAllOnDeviceBench : public OnDeviceBench {};
TEST_F(TestAllOnDeviceBench, ProductsExpertsAndTheOptimizerAreVerifiedThere) {
  verify_all("", "", "");
  BenchOptimizerArguments lamb;
  lamb.name = "lamb";
  lamb.parameters = 1000;
  EXPECT_TRUE(results(&athanor_core_bench_optimizer, lamb).contains("lamb"));
}

TEST_F(OnDeviceBench, AStepStatesItsLaunchesCopiesAndWaits) {
  BenchStepArguments given;
  given.config_file = write("run.toml", R"(
[model]
family = "qwen3_moe"
hidden_size = 64
num_hidden_layers = 2
num_attention_heads = 4
num_key_value_heads = 2
intermediate_size = 48
num_experts = 8
num_experts_per_tok = 2
vocab_size = 128
[data]
seq_len = 32
[train]
global_batch_size = 4
micro_batch_size = 2
dtype = "bfloat16"
)")
                          .string();
  const auto named = results(&athanor_core_bench_step, given);
  const auto& step = named.at("step");
  EXPECT_EQ(step.at("copies_to_device"), 1);
  EXPECT_EQ(step.at("copies_to_host"), 1);
  EXPECT_EQ(step.at("device_waits"), 1);
  EXPECT_GT(step.at("launches"), 100);
  EXPECT_GE(step.at("device_bytes").get<double>(), step.at("state_bytes").get<double>());
  for (const char* part : {"embedding", "attention", "moe", "head and loss", "AdamW", "gradient norm"})
    EXPECT_TRUE(named.contains(part)) << part;
}

// ---- bench comm: ranks are threads, each with a device

class OnDevicesBench : public OnDeviceBench {
 protected:
  nlohmann::json measure(int size, BenchCommArguments given) {
    given.rounds = 1;
    given.json = (folder_ / "comm.json").string();
    given.least_bytes = given.most_bytes = 256;
    given.hidden = 8, given.topk = 2, given.tokens = {4};
    comm::run_device_ranks(size, [&](comm::World& world, at::Device) {
      guarded::queues().set_order({guarded::Order::Kind::kDrawn, 3});
      bench::measure_comm(world, given);
      guarded::queues().synchronize_all();
      guarded::queues().set_order({});
    });
    return nlohmann::json::parse(read_file(given.json));
  }
};

TEST_F(OnDevicesBench, CollectivesOfBothLevelsAreVerifiedAndTimedOnDevices) {
  BenchCommArguments given;
  given.inner = 2;
  for (const char* dtype : {"float32", "bfloat16"}) {
    given.dtype = dtype;
    const auto found = measure(4, given);
    EXPECT_EQ(found.at("device"), "guarded:0");
    std::set<std::string> names;
    for (const auto& each : found.at("collectives")) names.insert(each.at("name").get<std::string>());
    EXPECT_EQ(names, (std::set<std::string>{"copy", "all_reduce", "reduce_scatter", "all_gather", "all_to_all",
                                            "broadcast", "send", "2l all_reduce", "2l all_to_all"}));
    EXPECT_EQ(found.at("dispatches").size(), 2u);  // over 2 and over 4 ranks
  }
}

TEST_F(OnDevicesBench, ACopyAndACollectiveCopyNothingToTheHost) {
  comm::run_device_ranks(2, [&](comm::World& world, at::Device device) {
    const auto group = world.make_group({{0, 1}}, "all", device);
    const at::Tensor x = at::ones({64}, at::TensorOptions().device(device)), y = at::ones_like(x);
    const auto before = guarded::copy_counts();
    bench::time_jointly(
        world.all(),
        {{"copy", 0, [&] { at::Tensor(y).copy_(x); }}, {"all_reduce", 0, [&] { group->all_reduce(x).wait(); }}}, 2,
        device);
    ATHANOR_ASSERT(guarded::copy_counts().to_host == before.to_host);
  });
}

// Work that takes two milliseconds, which the device begins when something waits for it.
TEST_F(OnDevicesBench, ATimeEndsWhenTheDeviceHasDoneTheCalls) {
  comm::run_device_ranks(2, [](comm::World& world, at::Device device) {
    guarded::queues().set_order({guarded::Order::Kind::kLatest});
    const auto submit = [] {
      guarded::queues().submit(guarded::current_stream(), "work",
                               [] { std::this_thread::sleep_for(std::chrono::milliseconds(2)); });
    };
    const double seconds = bench::time_jointly(world.all(), {{"work", 0, submit}}, 3, device).front();
    ATHANOR_ASSERT(seconds >= 0.002);
    guarded::queues().set_order({});
  });
}

}  // namespace
}  // namespace athanor::bench_device_test
