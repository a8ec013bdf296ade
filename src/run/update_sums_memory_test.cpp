// Compares what a measured step of metrics.update_watch_interval holds, by the allocator's count, with the formula, and
// the dry run's total with and without it.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "ops/cpu_allocator.h"
#include "run/dry_run.h"
#include "train/update_sums.h"

namespace athanor::update_sums_memory_test {
namespace {

// An embedding of two blocks and a half: the whole of a block is one piece.
RunConfig config_of(const std::string& optimizer, const std::string& dtype) {
  RunConfig c;
  c.model.family = "llama";
  c.model.hidden_size = 512;
  c.model.num_hidden_layers = 1;
  c.model.num_attention_heads = 4;
  c.model.intermediate_size = 512;
  c.model.num_experts = c.model.num_experts_per_tok = 0;
  c.model.vocab_size = 20'000;
  c.model.tie_word_embeddings = true;
  c.data.seq_len = 4;
  c.train.dtype = dtype;
  c.train.global_batch_size = c.train.micro_batch_size = 1;
  c.train.num_threads = 1;
  c.optimizer.name = optimizer;
  c.metrics.update_watch_interval = 1;
  return c;
}

// Returns the peak bytes of looking at each block of an update, without the update, beyond those before it.
double measured_peak(TrainState& state) {
  UpdateSums sums(state, nullptr);
  const auto before = ops::cpu_memory().in_use_bytes;
  ops::reset_peak_cpu_memory();
  const int64_t size = state.model.parameters.flat_size();
  for (int64_t at = 0; at < size; at += kUpdateBlock) {
    const FlatRange block{at, std::min(size, at + kUpdateBlock)};
    sums.before_update(block);
    sums.after_update(block);
  }
  return static_cast<double>(ops::cpu_memory().peak_in_use_bytes - before);
}

void expect_memory_of_measured_updates(const std::vector<std::pair<std::string, std::string>>& optimizers_and_dtypes) {
  if (!ops::install_caching_cpu_allocator()) GTEST_SKIP() << "addresses are limited here (ulimit -v)";
  at::set_num_threads(1);
  for (const auto& [optimizer, dtype] : optimizers_and_dtypes) {
    const RunConfig config = config_of(optimizer, dtype);
    TrainState state(config, {});  // weights of zero: what they are takes no memory
    const double computed = count_update_sums_bytes(state.model.parameters, state.model.plan),
                 measured = measured_peak(state);
    const bool bf16 = dtype == "bfloat16";
    EXPECT_EQ(computed, (bf16 ? 23.0 : 15.0) * static_cast<double>(kUpdateBlock)) << optimizer << " in " << dtype;
    // The results of sums are single numbers, each in a block of memory.
    EXPECT_NEAR(measured, computed, 4096) << optimizer << " in " << dtype;
  }
}

TEST(UpdateSumsMemory, OfAMeasuredUpdateIsThatOfTheFormula) {
  expect_memory_of_measured_updates({{"adamw", "bfloat16"}, {"muon", "float32"}});
}

TEST(TestAllUpdateSumsMemory, OfAMeasuredUpdateIsThatOfTheFormula) {
  expect_memory_of_measured_updates(
      {{"adamw", "bfloat16"}, {"adamw", "float32"}, {"muon", "bfloat16"}, {"muon", "float32"}});
}

TEST(UpdateSumsMemory, CountsInTheTotalOfADryRunWhereItIsMoreThanTheActivations) {
  for (const bool is_large : {false, true}) {
    RunConfig config = config_of("adamw", "bfloat16");
    if (is_large) config.data.seq_len = 2048, config.train.global_batch_size = config.train.micro_batch_size = 16;
    const DryRun measured = dry_run(config, 1, 0);
    config.metrics.update_watch_interval = 0;
    const DryRun plain = dry_run(config, 1, 0);
    EXPECT_EQ(plain.measured_update_bytes, 0);
    EXPECT_EQ(measured.measured_update_bytes, 23.0 * static_cast<double>(kUpdateBlock));
    const double more = measured.measured_update_bytes - plain.need.passing_bytes();
    EXPECT_EQ(more > 0, !is_large);
    EXPECT_EQ(measured.total_bytes() - plain.total_bytes(), std::max(0.0, more));
    const auto json = nlohmann::json::parse(to_json(measured, config, 1));
    EXPECT_EQ(json["memory_bytes"]["measured_update_transient"], measured.measured_update_bytes);
    const std::string text = report(measured, config, 1);
    EXPECT_NE(text.find("in a measured update, for a time"), text.npos);
    EXPECT_EQ(text.find("metrics.update_watch_interval; in the total in place of activations") != text.npos, !is_large);
    EXPECT_EQ(report(plain, config, 1).find("in a measured update"), std::string::npos);
  }
}

// Ranks that share the state look at their own parts of a bucket.
TEST(UpdateSumsMemory, OfRanksThatShareTheStateIsThatOfTheirPartsOfABucket) {
  RunConfig config = config_of("adamw", "bfloat16");
  config.train.global_batch_size = 4;
  config.parallelism.data_parallel_shard_degree = 4;
  config.parallelism.sharding = "optimizer";
  config.parallelism.bucket_mb = 1000;
  const double quarter = dry_run(config, 4, 1).measured_update_bytes;
  EXPECT_GT(quarter, 0.2 * 23 * static_cast<double>(kUpdateBlock));
  EXPECT_LE(quarter, 23 * static_cast<double>(kUpdateBlock));
}

}  // namespace
}  // namespace athanor::update_sums_memory_test
