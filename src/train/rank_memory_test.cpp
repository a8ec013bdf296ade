// Compares the peak memory of each of several ranks, and what it sends in a step, with the formulas: they agree within
// 5%. Ranks are threads with separate tensors.

#include <gtest/gtest.h>

#include <cstdlib>
#include <mutex>

#include "base/random.h"
#include "comm/thread_ranks.h"
#include "layout/activations.h"
#include "layout/traffic.h"
#include "model/initialize.h"
#include "ops/cpu_allocator.h"
#include "ops/testing/on_path.h"
#include "train/train_step.h"

namespace athanor::rank_memory_test {
namespace {

constexpr int64_t kSeqLen = 128, kVocab = 512;

struct Ranks {
  std::string name;
  bool moe = true;
  int data = 1, expert = 1, tensor = 1, pipeline = 1;
  bool sequence = false;
  std::vector<std::string> recompute = {};
  std::string schedule = "1f1b";
  int virtual_stages = 1;
  std::string sharding = "ep_aware", dispatch = "all_to_all";
  int kv_heads = 8;
  int64_t layers = 4, micro_batch_size = 4;
  int64_t microbatches = pipeline > 1 ? 4 : 2;

  int world() const { return data * tensor * pipeline; }
};
void PrintTo(const Ranks& ranks, std::ostream* out) { *out << ranks.name; }

RunConfig config_of(const Ranks& r) {
  RunConfig config;
  config.model.family = r.moe ? "olmoe" : "llama";
  config.model.hidden_size = 256;
  config.model.num_hidden_layers = r.layers;
  config.model.num_attention_heads = 8;
  config.model.num_key_value_heads = r.kv_heads;
  config.model.intermediate_size = r.moe ? 192 : 704;
  if (r.moe) {
    config.model.num_experts = 16;
    config.model.num_experts_per_tok = 4;
    config.moe.balance = "swipe";  // an even share for each expert, as in the formulas
  }
  config.model.vocab_size = kVocab;
  config.data.seq_len = kSeqLen;
  config.train.micro_batch_size = r.micro_batch_size;
  config.train.global_batch_size = r.micro_batch_size * r.data * r.microbatches;
  config.train.loss_chunk_tokens = r.micro_batch_size * kSeqLen / 2;
  config.train.num_threads = 1;
  config.moe.dispatch = r.dispatch;
  auto& p = config.parallelism;
  p.data_parallel_shard_degree = r.data;
  p.expert_parallel_degree = r.expert;
  p.tensor_parallel_degree = r.tensor;
  p.pipeline_parallel_degree = r.pipeline;
  p.pipeline_schedule = r.schedule;
  p.virtual_stages = r.virtual_stages;
  p.sequence_parallel = r.sequence;
  p.recompute = r.recompute;
  p.sharding = r.sharding;
  p.bucket_mb = 0.5;
  return config;
}

Batch batch_of(const RunConfig& config) {
  const CounterRandom random(1, "activations");
  const int64_t sequences = config.train.global_batch_size;
  Batch batch{sequences, kSeqLen, std::vector<int32_t>(static_cast<size_t>(sequences * kSeqLen)), {}, {}};
  for (size_t i = 0; i < batch.tokens.size(); ++i) batch.tokens[i] = static_cast<int32_t>(random.u64(i) % kVocab);
  return batch;
}

struct Measured {
  double peak = 0;
  std::map<GroupKind, double> sent;
};

std::vector<Measured> measure(const RunConfig& config, int world_size) {
  std::vector<Measured> measured(static_cast<size_t>(world_size));
  const Batch batch = batch_of(config);
  comm::run_ranks(world_size, [&](comm::World& world) {
    at::set_num_threads(1);
    Mesh mesh(Layout(config, world_size), world);
    TrainState state(config, {}, mesh);
    initialize_parameters(config.model, 1, state.model.parameters);
    train_step(state, batch);
    state.model.gatherer.wait_all();
    for (const auto& [kind, group] : mesh.groups()) group->reset_traffic();
    const auto before = ops::thread_cpu_memory().in_use_bytes;
    ops::reset_peak_thread_cpu_memory();
    train_step(state, batch);
    state.model.gatherer.wait_all();
    Measured& own = measured[static_cast<size_t>(world.rank())];
    own.peak = static_cast<double>(ops::thread_cpu_memory().peak_in_use_bytes - before);
    for (const auto& [kind, group] : mesh.groups()) own.sent[kind] = static_cast<double>(group->traffic().bytes());
  });
  return measured;
}

class RankMemory : public testing::TestWithParam<Ranks> {
 protected:
  void SetUp() override {
    if (!ops::install_caching_cpu_allocator()) GTEST_SKIP() << "addresses are limited here (ulimit -v)";
    if (ops::test::tile_paths().empty()) GTEST_SKIP() << "this CPU has no tiles, whose scratch memory is counted";
  }
};

const std::vector<std::string> kAll = {"norm", "attention", "moe"};
const std::vector<Ranks> kCases = {
    {.name = "data2", .moe = false, .data = 2},
    {.name = "data4_none", .moe = false, .data = 4, .sharding = "none"},
    {.name = "data4_expert2", .data = 4, .expert = 2},
    {.name = "data4_expert4_optimizer", .data = 4, .expert = 4, .sharding = "optimizer"},
    {.name = "expert2_moe_again", .data = 2, .expert = 2, .recompute = {"moe"}},
    {.name = "expert2_allgather", .data = 2, .expert = 2, .dispatch = "allgather"},
    {.name = "tensor2", .moe = false, .tensor = 2},
    {.name = "tensor2_sequence_layer_again", .moe = false, .tensor = 2, .sequence = true, .recompute = {"layer"}},
    {.name = "tensor2_sequence", .moe = false, .tensor = 2, .sequence = true},
    {.name = "tensor4_shared_keys", .moe = false, .tensor = 4, .kv_heads = 2},
    {.name = "moe_tensor2", .tensor = 2},
    {.name = "moe_tensor2_sequence_all_again", .tensor = 2, .sequence = true, .recompute = kAll},
    {.name = "pipeline2_gpipe", .moe = false, .pipeline = 2, .schedule = "gpipe"},
    {.name = "pipeline2_interleaved", .pipeline = 2, .schedule = "interleaved_1f1b", .virtual_stages = 2},
    {.name = "pipeline4_1f1b_moe_again", .pipeline = 4, .recompute = {"moe"}},
    {.name = "data2_expert2_pipeline2_tensor2", .data = 2, .expert = 2, .tensor = 2, .pipeline = 2},
};
// Together these have every degree, schedule, sharding and dispatch, with and without recomputation. They are small,
// but some not as small as others: in ranks with experts the formulas leave out up to 0.8 MB, which must stay below 5%.
const std::vector<Ranks> kFewCases = {
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
INSTANTIATE_TEST_SUITE_P(TestAll, RankMemory, testing::ValuesIn(kCases), name_of_case);

TEST_P(RankMemory, AndTrafficAreThoseOfTheFormulasWithinFivePercent) {
  const RunConfig config = config_of(GetParam());
  const Layout layout(config, GetParam().world());
  const auto path = ops::test::tile_paths().front();
  const ops::test::OnPath on(path);
  const Multiplier multiplier{1, path != ops::MatmulPath::kAvx512Bf16};
  const auto measured = measure(config, layout.world_size());
  for (int rank = 0; rank < layout.world_size(); ++rank) {
    const Measured& found = measured[static_cast<size_t>(rank)];
    const double computed = count_activations(config, kSeqLen, layout, rank, multiplier).peak_bytes;
    EXPECT_NEAR(computed / found.peak, 1, 0.05)
        << "rank " << rank << ": " << computed << " computed, " << found.peak << " had";
    std::map<GroupKind, double> sent;
    for (const RankTraffic& line : count_rank_traffic(config, layout, rank, kSeqLen)) sent[line.group] += line.bytes;
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
