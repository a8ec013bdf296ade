// Tests that a steady training step takes no memory from the system, whatever its tokens choose.

#include <gtest/gtest.h>

#include "base/random.h"
#include "model/initialize.h"
#include "ops/cpu_allocator.h"
#include "train/train_step.h"

namespace athanor::steady_memory_test {
namespace {

RunConfig tiny_config(const std::vector<std::string>& recompute) {
  RunConfig config;
  config.model.family = "olmoe";
  config.model.hidden_size = 64;
  config.model.num_hidden_layers = 3;
  config.model.num_attention_heads = 4;
  config.model.intermediate_size = 48;
  config.model.num_experts = 8;
  config.model.num_experts_per_tok = 2;
  config.model.vocab_size = 300;
  config.data.seq_len = 128;
  config.train.steps = 20;
  config.train.global_batch_size = 4;
  config.train.micro_batch_size = 2;
  config.train.dtype = "bfloat16";
  config.train.loss_chunk_tokens = 64;
  config.optimizer.lr = 1e-2;
  config.parallelism.recompute = recompute;
  return config;
}

// Each step has different tokens, so that the experts' rows differ.
Batch batch_of(int64_t step) {
  const CounterRandom random(1, "steady");
  Batch batch{4, 128, std::vector<int32_t>(4 * 128), {}};
  const uint64_t words = 3 + static_cast<uint64_t>(step) * 29;
  for (size_t i = 0; i < batch.tokens.size(); ++i)
    batch.tokens[i] = static_cast<int32_t>(random.u64(static_cast<uint64_t>(step) * 4096 + i) % words);
  return batch;
}

class SteadyMemory : public testing::TestWithParam<std::vector<std::string>> {};
INSTANTIATE_TEST_SUITE_P(Recompute, SteadyMemory,
                         testing::Values(std::vector<std::string>{}, std::vector<std::string>{"norm", "moe"},
                                         std::vector<std::string>{"layer"}));

TEST_P(SteadyMemory, StepsAfterTheThirdTakeNothingFromTheSystem) {
  if (!ops::install_caching_cpu_allocator()) GTEST_SKIP() << "addresses are limited here (ulimit -v)";
  TrainState state(tiny_config(GetParam()), {});
  initialize_parameters(state.config.model, 1, state.model.parameters);
  Tensor loads;
  size_t fresh = 0, in_use = 0;
  for (int64_t step = 1; step <= 8; ++step) {
    const StepReport report = train_step(state, batch_of(step));
    const Tensor now = report.parts.routers.taken;
    if (loads.defined()) {
      EXPECT_FALSE(at::equal(loads, now)) << "the rows of the experts should differ, or nothing is shown";
    }
    loads = now;
    if (step == 3) {
      fresh = ops::cpu_memory().num_fresh;
      in_use = ops::cpu_memory().in_use_bytes;
    }
  }
  EXPECT_EQ(ops::cpu_memory().num_fresh, fresh);
  EXPECT_LE(ops::cpu_memory().in_use_bytes, in_use) << "a step leaves tensors behind";
}

}  // namespace
}  // namespace athanor::steady_memory_test
