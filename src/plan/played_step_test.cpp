// Compares played steps with steps that ranks take: the memory that they have at their peak, and what they send.

#include "plan/played_step.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>

#include "arch/flops.h"
#include "base/text.h"
#include "config/toml_reader.h"
#include "layout/memory.h"
#include "ops/testing/on_path.h"
#include "train/testing/memory_cases.h"

namespace athanor::played_step_test {
namespace {

void print(const std::string& name, const PlayedStep& played, double measured) {
  if (!std::getenv("ATHANOR_PRINT_MEMORY")) return;
  fmt::print("{}: {:+.3f}% of {:.2f} MB, {} events, {:.3g} FLOPs\n", name,
             100 * (static_cast<double>(played.passing_bytes()) / measured - 1), measured / 1e6,
             played.record.events().size(), played.record.flops());
}

class PlayedStepOfOneRank : public testing::TestWithParam<MemoryCase> {};

INSTANTIATE_TEST_SUITE_P(Cases, PlayedStepOfOneRank,
                         testing::Values(MemoryCase{"llama", {"layer"}}, MemoryCase{"gpt_oss", {"moe"}}));
INSTANTIATE_TEST_SUITE_P(
    TestAll, PlayedStepOfOneRank,
    testing::Values(MemoryCase{"gemma2", {}, "float32"}, MemoryCase{"gpt_neox", {}}, MemoryCase{"deepseek_v2", {}},
                    MemoryCase{"olmo", {}}, MemoryCase{"llama", {}}, MemoryCase{"llama", {"attention"}},
                    MemoryCase{"qwen3", {}, "float32"}, MemoryCase{"olmoe", {}}, MemoryCase{"olmoe", {"norm"}},
                    MemoryCase{"olmoe", {"attention"}}, MemoryCase{"olmoe", {"moe"}}, MemoryCase{"olmoe", {"layer"}},
                    MemoryCase{"olmoe", {"norm", "attention", "moe"}}, MemoryCase{"olmoe", {}, "float32"},
                    MemoryCase{"qwen3_moe", {}}, MemoryCase{"qwen3_moe", {"norm", "moe"}}, MemoryCase{"gpt2", {}},
                    MemoryCase{"gpt2", {}, "float32"}, MemoryCase{"olmo2", {"layer"}}, MemoryCase{"starcoder2", {}},
                    MemoryCase{"gpt_neox", {"norm", "attention"}}, MemoryCase{"phi3", {}},
                    MemoryCase{"qwen2", {}, "float32"}, MemoryCase{"gemma2", {"norm"}}, MemoryCase{"gemma3_text", {}},
                    MemoryCase{"qwen2_moe", {"moe"}}, MemoryCase{"deepseek_v2", {"attention"}, "float32"},
                    MemoryCase{"deepseek_v3", {}}, MemoryCase{"gpt_oss", {}}, MemoryCase{"gpt_oss", {}, "float32"},
                    MemoryCase{"m6", {}}));

TEST_P(PlayedStepOfOneRank, HasTheMeasuredPeakWithinOnePercentAndTheCountedFlops) {
  if (!ops::install_caching_cpu_allocator()) GTEST_SKIP() << "addresses are limited here (ulimit -v)";
  at::set_num_threads(1);
  RunConfig config = memory_config(GetParam());
  if (config.model.is_moe()) config.moe.balance = "forced_uniform";
  for (const auto path : ops::test::tile_paths()) {
    const ops::test::OnPath on(path);
    const auto played = play_step(config, {});
    const double measured = measured_peak(config);
    print(GetParam().family + " " + name_of(path), *played, measured);
    EXPECT_NEAR(static_cast<double>(played->passing_bytes()) / measured, 1, 0.01) << name_of(path);
    // Both are sums of products of whole numbers, rounded to double. Kernels compute more for values that are narrower
    // than keys, which they pad (DeepSeek), and for the gradients of experts' biases, which are products (gpt-oss).
    const double executed = count_executed_flops(config.model, parse_recompute(config.parallelism.recompute),
                                                 config.train.global_batch_size, config.data.seq_len);
    const bool computes_more = GetParam().family.starts_with("deepseek") || GetParam().family == "gpt_oss";
    EXPECT_GT(played->record.flops() / executed, 1 - 1e-12) << name_of(path);
    EXPECT_LT(played->record.flops() / executed, 1 + (computes_more ? 0.01 : 1e-12)) << name_of(path);
  }
}

TEST(TestAllPlayedStep, HasTheMeasuredPeakWhereTheLibraryMultiplies) {
  if (!ops::install_caching_cpu_allocator()) GTEST_SKIP() << "addresses are limited here (ulimit -v)";
  at::set_num_threads(1);
  const ops::test::OnPath on(ops::MatmulPath::kLibrary);
  for (const char* family : {"llama", "olmoe"}) {
    RunConfig config = memory_config(MemoryCase{family, {}});
    if (config.model.is_moe()) config.moe.balance = "forced_uniform";
    const auto played = play_step(config, {});
    const double measured = measured_peak(config);
    print(std::string(family) + " library", *played, measured);
    EXPECT_NEAR(static_cast<double>(played->passing_bytes()) / measured, 1, 0.01) << family;
  }
}

class PlayedStepOfRanks : public testing::TestWithParam<MemoryRanks> {};

const std::vector<MemoryRanks> kFewRanks = {
    {.name = "data2_expert2_tensor2", .data = 2, .expert = 2, .tensor = 2, .sequence = true, .layers = 2},
    {.name = "tensor2_pipeline2", .moe = false, .tensor = 2, .pipeline = 2, .recompute = {"attention"}},
    {.name = "data2_tensor2_muon", .moe = false, .data = 2, .tensor = 2, .layers = 2, .optimizer = "muon"},
};
const std::vector<MemoryRanks> kMore = {
    {.name = "expert4_all_to_all_2d", .data = 4, .expert = 4, .dispatch = "all_to_all_2d"},
    {.name = "hierarchical", .data = 4, .expert = 2, .sharding = "hierarchical"},
    {.name = "rounded_gradients", .data = 2, .expert = 2, .reduce_dtype = "bfloat16"},
    {.name = "sgd", .moe = false, .data = 2, .tensor = 2, .optimizer = "sgd"},
    {.name = "lamb", .data = 2, .tensor = 2, .optimizer = "lamb"},
    {.name = "sophiag", .data = 2, .tensor = 2, .optimizer = "sophiag"},
    {.name = "muon", .data = 2, .expert = 2, .tensor = 2, .optimizer = "muon"},
    {.name = "muon_shared_keys", .moe = false, .tensor = 4, .kv_heads = 2, .optimizer = "muon"},
};
const auto name_of_layout = [](const auto& one) { return one.param.name; };
INSTANTIATE_TEST_SUITE_P(Layouts, PlayedStepOfRanks, testing::ValuesIn(kFewRanks), name_of_layout);
INSTANTIATE_TEST_SUITE_P(TestAll, PlayedStepOfRanks, testing::ValuesIn(kMemoryRanks), name_of_layout);
INSTANTIATE_TEST_SUITE_P(TestAllMore, PlayedStepOfRanks, testing::ValuesIn(kMore), name_of_layout);

TEST_P(PlayedStepOfRanks, HaveTheMeasuredPeaksAndSendTheMeasuredBytes) {
  if (!ops::install_caching_cpu_allocator()) GTEST_SKIP() << "addresses are limited here (ulimit -v)";
  at::set_num_threads(1);
  RunConfig config = memory_config(GetParam());
  if (config.model.is_moe()) config.moe.balance = "forced_uniform";
  const Layout layout(config, GetParam().world());
  const auto measured = measure_ranks(config, layout.world_size());
  for (int rank = 0; rank < layout.world_size(); ++rank) {
    const MeasuredStep& found = measured[static_cast<size_t>(rank)];
    const auto played = play_step(config, {layout.world_size(), rank});
    print(fmt::format("{} rank {}", GetParam().name, rank), *played, found.peak);
    EXPECT_NEAR(static_cast<double>(played->passing_bytes()) / found.peak, 1, 0.01) << "rank " << rank;
    for (const auto& [kind, bytes] : found.sent)
      EXPECT_NEAR(static_cast<double>(played->record.bytes_sent(kind)), bytes, 0.01 * bytes) << group_name(kind);
  }
}

// Mula-220B of Optimus, whose rank no machine of a test could hold.
TEST(PlayedStep, OfALargeModelHasTheStateOfTheFormulaAndEveryMicrobatch) {
  const char* source = std::getenv("ATHANOR_SOURCE_DIR");
  if (!source) GTEST_SKIP() << "ATHANOR_SOURCE_DIR is not set";
  const RunConfig config = load_run_config(std::filesystem::path(source) / "recipes/mula-220b-a10b.toml");
  const Layout layout(config, 384);
  const auto begin = std::chrono::steady_clock::now();
  const auto played = play_step(config, {layout.world_size()});
  if (std::getenv("ATHANOR_PRINT_MEMORY"))
    fmt::print("Mula-220B: {:.2f} s, {} events\n",
               std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(),
               played->record.events().size());
  const auto state = count_state_bytes(config, layout, 0, plan_optimizers(config.optimizer)).total();
  EXPECT_NEAR(static_cast<double>(played->kept_bytes) / static_cast<double>(state), 1, 1e-3);  // padding of buckets
  const auto& phases = played->record.phases();
  const auto count = [&](board::Phase phase) { return std::ranges::count(phases, phase, &PlayedPhase::phase); };
  EXPECT_EQ(layout.microbatches(), 64);
  EXPECT_EQ(count(board::Phase::kForward), 64);
  EXPECT_EQ(count(board::Phase::kBackward), 64);
}

TEST(PlayedStep, HasThePhasesOfAStepAndTheirPeaks) {
  const auto played = play_step(memory_config(MemoryCase{"olmoe", {}}), {});  // two microbatches
  std::vector<std::string> phases;
  int64_t most = 0;
  for (const PlayedPhase& part : played->record.phases()) {
    phases.emplace_back(board::phase_name(static_cast<uint32_t>(part.phase)));
    EXPECT_GE(part.peak_bytes, part.bytes_before);
    most = std::max(most, part.peak_bytes);
  }
  EXPECT_EQ(join(phases, " "), "forward backward forward backward reduce update");
  EXPECT_EQ(most, played->record.peak_bytes());
  EXPECT_EQ(played->gradient_bytes(), played->passing_bytes());
  EXPECT_GT(played->gradient_bytes(), played->activation_bytes());
  EXPECT_GT(played->activation_bytes(), played->update_bytes());
}

}  // namespace
}  // namespace athanor::played_step_test
