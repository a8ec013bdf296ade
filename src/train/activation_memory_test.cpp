// Compares the activations of a step on one rank, by the allocator's count, with the formulas of layout/activations.h:
// they agree within 5%.

#include <gtest/gtest.h>

#include "base/random.h"
#include "base/testing/test_all.h"
#include "layout/activations.h"
#include "model/initialize.h"
#include "ops/cpu_allocator.h"
#include "ops/testing/on_path.h"
#include "train/train_step.h"

namespace athanor::activation_memory_test {
namespace {

constexpr int64_t kSeqLen = 128, kVocab = 512;

struct Case {
  std::string family;
  std::vector<std::string> recompute;
  std::string dtype = "bfloat16";
  size_t path = 0;  // the index in tile_paths(), in `make test`
};

struct Size {
  int64_t layers, micro_batch_size;
};

RunConfig config_of(const Case& of, const Size& size) {
  const std::string& family = of.family;
  RunConfig config;
  config.model.family = family;
  config.model.hidden_size = 256;
  config.model.num_hidden_layers = size.layers;
  config.model.num_attention_heads = 4;
  config.model.num_key_value_heads = family == "olmo" || family == "olmoe" ? 4 : 2;
  config.model.intermediate_size = family == "olmoe" || family == "qwen3_moe" ? 192 : 704;
  if (family == "olmoe" || family == "qwen3_moe") {
    config.model.num_experts = 16;
    config.model.num_experts_per_tok = 4;
    config.model.moe_intermediate_size = family == "olmoe" ? 0 : 192;
  }
  if (family == "deepseek_v2") {
    config.model.num_key_value_heads = 0;
    config.model.num_experts = 16, config.model.num_experts_per_tok = 4, config.model.num_shared_experts = 1;
    config.model.moe_intermediate_size = 192;
    config.model.q_lora_rank = 96, config.model.kv_lora_rank = 64;
    config.model.qk_nope_head_dim = config.model.v_head_dim = 48, config.model.qk_rope_head_dim = 16;
  }
  config.model.vocab_size = kVocab;
  config.data.seq_len = kSeqLen;
  config.train.global_batch_size = 2 * size.micro_batch_size;
  config.train.micro_batch_size = size.micro_batch_size;
  config.train.dtype = of.dtype;
  config.train.loss_chunk_tokens = size.micro_batch_size * kSeqLen / 2;
  config.parallelism.recompute = of.recompute;
  return config;
}

Batch batch_of(const RunConfig& config) {
  const CounterRandom random(1, "activations");
  const int64_t sequences = config.train.global_batch_size;
  Batch batch{sequences, kSeqLen, std::vector<int32_t>(static_cast<size_t>(sequences * kSeqLen)), {}, {}};
  for (size_t i = 0; i < batch.tokens.size(); ++i) batch.tokens[i] = static_cast<int32_t>(random.u64(i) % kVocab);
  return batch;
}

// Returns the peak bytes of a step beyond those before it.
double measured_peak(const RunConfig& config) {
  TrainState state(config, {});
  initialize_parameters(config.model, 1, state.model.parameters);
  const Batch batch = batch_of(config);
  train_step(state, batch);
  const auto before = ops::cpu_memory().in_use_bytes;
  ops::reset_peak_cpu_memory();
  train_step(state, batch);
  return static_cast<double>(ops::cpu_memory().peak_in_use_bytes - before);
}

class ActivationMemory : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (!ops::install_caching_cpu_allocator()) GTEST_SKIP() << "addresses are limited here (ulimit -v)";
    if (ops::test::tile_paths().empty()) GTEST_SKIP() << "this CPU has no tiles, whose scratch memory is counted";
    at::set_num_threads(1);
  }
};

// Together these have every family, dtype, path and kind of recomputation.
INSTANTIATE_TEST_SUITE_P(Cases, ActivationMemory,
                         testing::Values(Case{"olmo", {}, "bfloat16", 0}, Case{"llama", {"layer"}, "bfloat16", 1},
                                         Case{"qwen3", {}, "float32", 0}, Case{"olmoe", {"attention"}, "bfloat16", 1},
                                         Case{"qwen3_moe", {"norm", "moe"}, "bfloat16", 0},
                                         Case{"olmoe", {}, "float32", 1}, Case{"gpt2", {"attention"}, "bfloat16", 0},
                                         Case{"olmo2", {"norm"}, "bfloat16", 1}, Case{"gpt_neox", {}, "bfloat16", 0},
                                         Case{"gemma2", {}, "bfloat16", 1}, Case{"deepseek_v2", {}, "bfloat16", 0}));
INSTANTIATE_TEST_SUITE_P(
    TestAll, ActivationMemory,
    testing::Values(Case{"olmo", {}}, Case{"llama", {}}, Case{"llama", {"layer"}}, Case{"llama", {"attention"}},
                    Case{"qwen3", {}, "float32"}, Case{"olmoe", {}}, Case{"olmoe", {"norm"}},
                    Case{"olmoe", {"attention"}}, Case{"olmoe", {"moe"}}, Case{"olmoe", {"layer"}},
                    Case{"olmoe", {"norm", "attention", "moe"}}, Case{"olmoe", {}, "float32"}, Case{"qwen3_moe", {}},
                    Case{"qwen3_moe", {"norm", "moe"}}, Case{"gpt2", {}}, Case{"gpt2", {}, "float32"},
                    Case{"olmo2", {}}, Case{"olmo2", {"layer"}}, Case{"olmo2", {"attention", "moe"}, "float32"},
                    Case{"starcoder2", {}}, Case{"gpt_neox", {}}, Case{"gpt_neox", {"norm", "attention"}},
                    Case{"gpt_neox", {"layer"}, "float32"}, Case{"phi3", {}}, Case{"qwen2", {}, "float32"},
                    Case{"gemma2", {"norm"}, "float32"}, Case{"gemma3_text", {"attention"}}, Case{"qwen2_moe", {}},
                    Case{"qwen2_moe", {"moe"}, "float32"}, Case{"deepseek_v2", {"attention"}, "float32"},
                    Case{"deepseek_v2", {"layer"}}));

TEST_P(ActivationMemory, AtItsPeakIsThatOfTheFormulaWithinFivePercent) {
  const RunConfig config = config_of(GetParam(), test::is_of_test_all() ? Size{4, 4} : Size{2, 2});
  auto paths = ops::test::tile_paths();
  if (!test::is_of_test_all()) paths = {paths[GetParam().path % paths.size()]};
  for (const auto path : paths) {
    const ops::test::OnPath on(path);
    const Multiplier multiplier{1, path != ops::MatmulPath::kAvx512Bf16};
    const auto need = count_activations(config, kSeqLen, Layout(config, 1), 0, multiplier);
    const double measured = measured_peak(config);
    EXPECT_NEAR(need.peak_bytes / measured, 1, 0.05)
        << name_of(path) << ": " << need.peak_bytes << " computed, " << measured << " measured";
  }
}

}  // namespace
}  // namespace athanor::activation_memory_test
