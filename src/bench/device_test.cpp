// The benchmarks on the device that the host plays: they verify there, and state what a step makes the device do.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/core_entry.h"
#include "base/testing/folder_test.h"
#include "bench/arguments.h"
#include "bench/timer.h"
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

TEST_F(OnDeviceBench, ProductsExpertsAndTheOptimizerAreVerifiedThere) {
  guarded::queues().set_order({guarded::Order::Kind::kDrawn, 2});
  BenchGemmArguments gemm;
  gemm.any_shape = true;
  gemm.experts = 3, gemm.rows = 8, gemm.k = 32, gemm.n = 16;
  EXPECT_TRUE(results(&athanor_core_bench_gemm, gemm).contains("grouped weight gradient"));
  BenchMoeArguments moe;
  moe.any_shape = true;
  moe.tokens = 64, moe.hidden = 32, moe.ffn = 16, moe.experts = 4, moe.topk = 2;
  EXPECT_TRUE(results(&athanor_core_bench_moe, moe).contains("moe, experts"));
  BenchOptimizerArguments optimizer;
  optimizer.parameters = 1000;
  EXPECT_TRUE(results(&athanor_core_bench_optimizer, optimizer).contains("adamw"));
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

}  // namespace
}  // namespace athanor::bench_device_test
