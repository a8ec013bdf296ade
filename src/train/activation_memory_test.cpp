// Compares the activations of a step on one rank, by the allocator's count, with the formulas of layout/activations.h:
// they agree within 5%.

#include <gtest/gtest.h>

#include "base/testing/test_all.h"
#include "layout/activations.h"
#include "ops/testing/on_path.h"
#include "train/testing/memory_cases.h"

namespace athanor::activation_memory_test {
namespace {

class ActivationMemory : public testing::TestWithParam<MemoryCase> {
 protected:
  void SetUp() override {
    if (!ops::install_caching_cpu_allocator()) GTEST_SKIP() << "addresses are limited here (ulimit -v)";
    if (ops::test::tile_paths().empty()) GTEST_SKIP() << "this CPU has no tiles, whose scratch memory is counted";
    at::set_num_threads(1);
  }
};

// Together these have every family, dtype, path and kind of recomputation.
INSTANTIATE_TEST_SUITE_P(
    Cases, ActivationMemory,
    testing::Values(MemoryCase{"olmo", {}, "bfloat16", 0}, MemoryCase{"llama", {"layer"}, "bfloat16", 1},
                    MemoryCase{"qwen3", {}, "float32", 0}, MemoryCase{"olmoe", {"attention"}, "bfloat16", 1},
                    MemoryCase{"qwen3_moe", {"norm", "moe"}, "bfloat16", 0}, MemoryCase{"olmoe", {}, "float32", 1},
                    MemoryCase{"gpt2", {"attention"}, "bfloat16", 0}, MemoryCase{"olmo2", {"norm"}, "bfloat16", 1},
                    MemoryCase{"gpt_neox", {}, "bfloat16", 0}, MemoryCase{"gemma2", {}, "bfloat16", 1},
                    MemoryCase{"deepseek_v2", {}, "bfloat16", 0}, MemoryCase{"gpt_oss", {}, "bfloat16", 0},
                    MemoryCase{"m6", {}, "float32", 1}));
INSTANTIATE_TEST_SUITE_P(
    TestAll, ActivationMemory,
    testing::Values(MemoryCase{"olmo", {}}, MemoryCase{"llama", {}}, MemoryCase{"llama", {"layer"}},
                    MemoryCase{"llama", {"attention"}}, MemoryCase{"qwen3", {}, "float32"}, MemoryCase{"olmoe", {}},
                    MemoryCase{"olmoe", {"norm"}}, MemoryCase{"olmoe", {"attention"}}, MemoryCase{"olmoe", {"moe"}},
                    MemoryCase{"olmoe", {"layer"}}, MemoryCase{"olmoe", {"norm", "attention", "moe"}},
                    MemoryCase{"olmoe", {}, "float32"}, MemoryCase{"qwen3_moe", {}},
                    MemoryCase{"qwen3_moe", {"norm", "moe"}}, MemoryCase{"gpt2", {}}, MemoryCase{"gpt2", {}, "float32"},
                    MemoryCase{"olmo2", {}}, MemoryCase{"olmo2", {"layer"}},
                    MemoryCase{"olmo2", {"attention", "moe"}, "float32"}, MemoryCase{"starcoder2", {}},
                    MemoryCase{"gpt_neox", {}}, MemoryCase{"gpt_neox", {"norm", "attention"}},
                    MemoryCase{"gpt_neox", {"layer"}, "float32"}, MemoryCase{"phi3", {}},
                    MemoryCase{"qwen2", {}, "float32"}, MemoryCase{"gemma2", {"norm"}, "float32"},
                    MemoryCase{"gemma3_text", {"attention"}}, MemoryCase{"qwen2_moe", {}},
                    MemoryCase{"qwen2_moe", {"moe"}, "float32"}, MemoryCase{"deepseek_v2", {"attention"}, "float32"},
                    MemoryCase{"deepseek_v2", {"layer"}}, MemoryCase{"gpt_oss", {"moe"}},
                    MemoryCase{"gpt_oss", {}, "float32"}, MemoryCase{"m6", {}}));

TEST_P(ActivationMemory, AtItsPeakIsThatOfTheFormulaWithinFivePercent) {
  const RunConfig config = memory_config(GetParam(), test::is_of_test_all() ? MemorySize{} : MemorySize{2, 2});
  auto paths = ops::test::tile_paths();
  if (!test::is_of_test_all()) paths = {paths[GetParam().path % paths.size()]};
  for (const auto path : paths) {
    const ops::test::OnPath on(path);
    const Multiplier multiplier{1, path != ops::MatmulPath::kAvx512Bf16};
    const auto need = count_activations(config, kMemorySeqLen, Layout(config, 1), 0, multiplier);
    const double measured = measured_peak(config);
    EXPECT_NEAR(need.peak_bytes / measured, 1, 0.05)
        << name_of(path) << ": " << need.peak_bytes << " computed, " << measured << " measured";
  }
}

}  // namespace
}  // namespace athanor::activation_memory_test
