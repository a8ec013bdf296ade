// Compares the peak memory of each of several ranks, and what it sends in a step, with the formulas: they agree within
// 5%. Ranks are threads with separate tensors.

#include <gtest/gtest.h>

#include <cstdlib>

#include "layout/activations.h"
#include "layout/traffic.h"
#include "ops/testing/on_path.h"
#include "train/testing/memory_cases.h"

namespace athanor::rank_memory_test {
namespace {

class RankMemory : public testing::TestWithParam<MemoryRanks> {
 protected:
  void SetUp() override {
    if (!ops::install_caching_cpu_allocator()) GTEST_SKIP() << "addresses are limited here (ulimit -v)";
    if (ops::test::tile_paths().empty()) GTEST_SKIP() << "this CPU has no tiles, whose scratch memory is counted";
  }
};

const std::vector<std::string> kAll = {"norm", "attention", "moe"};
// Together these have every degree, schedule, sharding and dispatch, with and without recomputation. They are small,
// but some not as small as others: in ranks with experts the formulas leave out up to 0.8 MB, which must stay below 5%.
const std::vector<MemoryRanks> kFewCases = {
    {.name = "data4_expert4_optimizer",
     .data = 4,
     .expert = 4,
     .sharding = "optimizer",
     .layers = 2,
     .micro_batch_size = 2},
    {.name = "expert2_allgather", .data = 2, .expert = 2, .dispatch = "allgather", .microbatches = 1},
    {.name = "tensor2_sequence_layer_again",
     .moe = false,
     .tensor = 2,
     .sequence = true,
     .recompute = {"layer"},
     .layers = 2,
     .micro_batch_size = 2},
    {.name = "tensor4_shared_keys", .moe = false, .tensor = 4, .kv_heads = 2, .layers = 2, .micro_batch_size = 2},
    {.name = "moe_tensor2_sequence_all_again",
     .tensor = 2,
     .sequence = true,
     .recompute = kAll,
     .layers = 2,
     .micro_batch_size = 2},
    {.name = "data2_none_pipeline2_gpipe",
     .moe = false,
     .data = 2,
     .pipeline = 2,
     .schedule = "gpipe",
     .sharding = "none",
     .micro_batch_size = 1},
    {.name = "pipeline2_interleaved",
     .pipeline = 2,
     .schedule = "interleaved_1f1b",
     .virtual_stages = 2,
     .micro_batch_size = 1},
    {.name = "pipeline4_1f1b_moe_again", .pipeline = 4, .recompute = {"moe"}, .micro_batch_size = 1},
};
const auto name_of_case = [](const auto& one) { return one.param.name; };
INSTANTIATE_TEST_SUITE_P(Layouts, RankMemory, testing::ValuesIn(kFewCases), name_of_case);
INSTANTIATE_TEST_SUITE_P(TestAll, RankMemory, testing::ValuesIn(kMemoryRanks), name_of_case);

TEST_P(RankMemory, AndTrafficAreThoseOfTheFormulasWithinFivePercent) {
  const RunConfig config = memory_config(GetParam());
  const Layout layout(config, GetParam().world());
  const auto path = ops::test::tile_paths().front();
  const ops::test::OnPath on(path);
  const Multiplier multiplier{1, path != ops::MatmulPath::kAvx512Bf16};
  const auto measured = measure_ranks(config, layout.world_size());
  for (int rank = 0; rank < layout.world_size(); ++rank) {
    const MeasuredStep& found = measured[static_cast<size_t>(rank)];
    const double computed = count_activations(config, kMemorySeqLen, layout, rank, multiplier).peak_bytes;
    EXPECT_NEAR(computed / found.peak, 1, 0.05)
        << "rank " << rank << ": " << computed << " computed, " << found.peak << " had";
    std::map<GroupKind, double> sent;
    for (const RankTraffic& line : count_rank_traffic(config, layout, rank, kMemorySeqLen))
      sent[line.group] += line.bytes;
    for (const auto& [kind, bytes] : found.sent) {
      // The table leaves out the few numbers of the step's report and of the norm.
      EXPECT_NEAR(sent[kind], bytes, 0.05 * bytes + 1024) << "rank " << rank << ", " << group_name(kind);
    }
    if (std::getenv("ATHANOR_PRINT_MEMORY"))
      fmt::print("{} rank {}: {:+.2f}% of {:.2f} MB\n", GetParam().name, rank, 100 * (computed / found.peak - 1),
                 found.peak / 1e6);
  }
}

}  // namespace
}  // namespace athanor::rank_memory_test
