// Compares played steps on a device with steps that ranks take on the device that the host plays: its memory at the
// peak, and what they send.

#include <gtest/gtest.h>

#include <cstdlib>
#include <vector>

#include "comm/testing/guarded_groups.h"
#include "model/initialize.h"
#include "plan/played_step.h"
#include "train/testing/device_case.h"
#include "train/testing/memory_cases.h"
#include "train/train_step.h"

namespace athanor::played_device_test {
namespace {

struct Case {
  std::string name;
  RunConfig config;
  int ranks = 1;
  bool has_kernels = true;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

Case one(const std::string& name, const std::string& family, const std::string& dtype = "bfloat16",
         const std::vector<std::string>& recompute = {}, bool has_kernels = true) {
  Case of{name, memory_config(MemoryCase{family, recompute, dtype}, {.layers = 2, .micro_batch_size = 2}), 1,
          has_kernels};
  if (of.config.model.is_moe()) of.config.moe.balance = "forced_uniform";
  return of;
}

Case documents(Case of) {
  of.name += "_documents";
  of.config.data.attention_scope = "document";
  return of;
}

Case several(MemoryRanks ranks) {
  ranks.layers = std::max(2, ranks.pipeline * ranks.virtual_stages);
  ranks.micro_batch_size = 2;
  ranks.microbatches = ranks.pipeline > 1 ? 4 : 2;
  Case of{ranks.name, memory_config(ranks), ranks.world()};
  if (of.config.model.is_moe()) of.config.moe.balance = "forced_uniform";
  return of;
}

Case tree_sums(Case of) {
  of.name += "_tree_sums";
  of.config.parallelism.device_sums = "tree";
  return of;
}

// The bytes that a rank's step takes at its peak, beyond what it held before.
std::vector<double> measure(const RunConfig& config, int size) {
  const Layout layout(config, size);
  std::vector<double> peaks(static_cast<size_t>(size));
  comm::run_device_ranks(size, [&](comm::World& world, at::Device device) {
    Mesh mesh(layout, world);
    if (size > 1) mesh.use(device);
    DataIdentity data;
    data.eos_id = static_cast<uint32_t>(config.model.vocab_size);  // no document is so short that tables grow
    TrainState state(config, data, mesh, {.device = device});
    initialize_parameters(config.model, 1, state.model.parameters);
    guarded::queues().synchronize_all();
    world.all().barrier();
    const auto before = guarded::memory().asked();
    guarded::memory().reset_peak();
    train_step(state, memory_batch(config));
    guarded::queues().synchronize_all();
    peaks[static_cast<size_t>(world.rank())] = static_cast<double>(guarded::memory().peak_asked() - before);
  });
  return peaks;
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const char* family :
       {"llama", "olmo", "olmo2", "olmo3", "qwen2", "qwen3", "gemma2", "gemma3_text", "phi3", "gpt2", "gpt_neox",
        "starcoder2", "olmoe", "qwen3_moe", "qwen2_moe", "deepseek_v2", "deepseek_v3", "gpt_oss", "m6"})
    cases.push_back(one(family, family));
  for (const char* family : {"llama", "olmoe", "deepseek_v2", "gpt_oss", "gemma2"}) {
    cases.push_back(one(std::string(family) + "_fp32", family, "float32"));
    cases.push_back(one(std::string(family) + "_without_kernels", family, "bfloat16", {}, /*has_kernels=*/false));
  }
  for (const char* kind : {"norm", "attention", "moe", "layer"})
    cases.push_back(one(std::string("olmoe_") + kind + "_again", "olmoe", "bfloat16", {kind}));
  cases.push_back(documents(one("llama", "llama")));
  cases.push_back(documents(one("llama_fp32", "llama", "float32")));
  for (const MemoryRanks& ranks : kMemoryRanks) cases.push_back(several(ranks));
  for (const char* optimizer : {"sgd", "lamb", "sophiag", "muon"})
    cases.push_back(several({.name = optimizer, .data = 2, .expert = 2, .tensor = 2, .optimizer = optimizer}));
  cases.push_back(several({.name = "all_to_all_2d", .data = 4, .expert = 4, .dispatch = "all_to_all_2d"}));
  cases.push_back(several({.name = "hierarchical", .data = 4, .expert = 2, .sharding = "hierarchical"}));
  cases.push_back(tree_sums(several({.name = "data4", .data = 4, .expert = 2})));
  return cases;
}
const auto name_of_case = [](const auto& each) { return each.param.name; };

double bytes_in_messages(const PlayRecord& record) {
  double bytes = 0;
  for (const auto& [kind, total] : record.sent())
    if (kind.collective == Collective::kSend) bytes += static_cast<double>(total.bytes);
  return bytes;
}

class PlayedStepOnDevice : public testing::TestWithParam<Case> {};
// Each type, dispatch and axis once, on two ranks at most.
INSTANTIATE_TEST_SUITE_P(
    Layouts, PlayedStepOnDevice,
    testing::Values(documents(one("llama_fp32", "llama", "float32")),
                    several({.name = "allgather2", .data = 2, .expert = 2, .dispatch = "allgather"}),
                    several({.name = "all_to_all2", .data = 2, .expert = 2}),
                    several({.name = "tensor2", .moe = false, .tensor = 2, .sequence = true})),
    name_of_case);
INSTANTIATE_TEST_SUITE_P(TestAll, PlayedStepOnDevice, testing::ValuesIn(all_cases()), name_of_case);

// The host runs ahead of a device: of the messages of a pipeline it may keep each until it has been sent, where a play
// keeps none.
TEST_P(PlayedStepOnDevice, HasTheMeasuredPeak) {
  const auto& [name, config, size, has_kernels] = GetParam();
  guarded::set_kernels(has_kernels);
  const std::vector<double> peaks = measure(config, size);
  guarded::set_kernels(true);
  const ops::PlayedPlace place = has_kernels ? ops::PlayedPlace::kCuda : ops::PlayedPlace::kOther;
  for (int rank = 0; rank < size; ++rank) {
    const auto played = play_step(config, {size, rank, place});
    const double found = peaks[static_cast<size_t>(rank)], computed = static_cast<double>(played->passing_bytes());
    EXPECT_LE(computed, found) << "rank " << rank;
    EXPECT_LE(found, computed + bytes_in_messages(played->record)) << "rank " << rank;
    if (std::getenv("ATHANOR_PRINT_MEMORY"))
      fmt::print("{} rank {}: {:+.3f}% of {:.3f} MB\n", name, rank, 100 * (computed / found - 1), found / 1e6);
  }
}

}  // namespace
}  // namespace athanor::played_device_test
