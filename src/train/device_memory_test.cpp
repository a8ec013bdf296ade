#include "train/device_memory.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/testing/folder_test.h"
#include "base/text.h"
#include "comm/testing/played_groups.h"
#include "model/initialize.h"
#include "parallel/testing/small_layouts.h"
#include "train/memory_remedies.h"
#include "train/testing/device_case.h"
#include "train/testing/fixed_batch.h"
#include "train/train_step.h"

namespace athanor::device_memory_test {
namespace {

RunConfig config_of(const std::string& family, const Degrees& degrees, const std::string& dispatch = "allgather") {
  RunConfig c = small_device_run(family, "bfloat16");
  c.model.hidden_size = 128;
  c.model.vocab_size = 512;
  c.model.num_hidden_layers = 4;
  c.data.seq_len = 128;
  c.moe.dispatch = dispatch;
  c.moe.balance = c.model.num_experts > 0 ? "swipe" : "none";  // an even share for each expert, as in the formulas
  c.train.global_batch_size = 16;
  c.train.micro_batch_size = 4;
  c.train.loss_chunk_tokens = 128;
  set_degrees(c, degrees);
  return c;
}

TEST(DeviceMemory, OfTheRankThatLacksMostIsNamedFirstWithWhatWouldFit) {
  const RunConfig config = config_of("olmoe", {1, 4, 2, "ep_aware"});
  const double need = need_on_device(config, {0, 4}).total();
  const std::vector<std::string> hosts = {"a", "a", "b", "b"};
  EXPECT_EQ(find_lacking_memory(config, {{1, 2}, {1, -1}, {2, 2}, {0, 0}}, hosts, at::kCUDA), "");
  const std::string one =
      find_lacking_memory(config, {{need, need}, {need, 0.9 * need}, {1, 2}, {1, 2}}, hosts, at::kCUDA);
  EXPECT_EQ(one.find('\n'), one.npos) << one;
  EXPECT_SAYS(one, fmt::format("needs about {} of memory on the device of rank 1 (a) (", format_bytes(need)));
  EXPECT_SAYS(one, "of buffers of communicators, ");
  EXPECT_SAYS(one, fmt::format("and {} are free there; ", format_bytes(0.9 * need)));
  const std::string all = find_lacking_memory(config, {{8, 7}, {8, 6}, {8, 0}, {8, 5}}, hosts, at::kCUDA);
  EXPECT_SAYS(all, "the device of rank 2 (b)");
  EXPECT_SAYS(
      all,
      "\nother devices have too little memory, too: rank 0 (a) needs 8B and has 7B; rank 1 (a) needs 8B and has "
      "6B; rank 3 (b) needs 8B and has 5B");
}

TEST(DeviceMemory, ThatOneDeviceLacksIsRefusedOnAllRanks) {
  const RunConfig config = config_of("olmoe", {1, 4, 1, "ep_aware"});
  std::atomic<int> num_refused{0};
  comm::run_device_ranks(4, [&](comm::World& world, at::Device device) {
    check_device_memory(config, world, device);
    world.all().barrier();
    if (world.rank() == 1) guarded::memory().set_limit(guarded::memory().allocated() + (size_t{1} << 20));
    try {
      check_device_memory(config, world, device);
    } catch (const ConfigError& error) {
      const std::string said = error.what();
      ATHANOR_ASSERT(said.find("on the device of rank 1 (") != said.npos);
      ATHANOR_ASSERT(said.find("1.00MiB are free there") != said.npos);
      ++num_refused;
    }
    if (world.rank() == 1) guarded::memory().set_limit(SIZE_MAX);
  });
  EXPECT_EQ(num_refused, 4);
}

// ---- the estimate compared with what is allocated

struct Case {
  std::string name, family;
  Degrees degrees;
  std::string dispatch = "allgather";
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

class OnDeviceMemory : public testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Layouts, OnDeviceMemory,
                         testing::Values(Case{"one_olmoe", "olmoe", {1, 1, 1, "none"}},
                                         Case{"one_llama", "llama", {1, 1, 1, "none"}},
                                         Case{"allgather2", "olmoe", {1, 2, 2, "ep_aware"}},
                                         Case{"allgather4", "olmoe", {1, 4, 4, "ep_aware"}},
                                         Case{"all_to_all4", "olmoe", {1, 4, 4, "ep_aware"}, "all_to_all"},
                                         Case{"tensor2", "llama", {1, 1, 1, "none", 2, 1}},
                                         Case{"pipeline2", "qwen3_moe", {1, 1, 1, "none", 1, 2}}),
                         [](const auto& each) { return each.param.name; });

TEST_P(OnDeviceMemory, OfActivationsIsThatOfTheFormulaWithinATenth) {
  const RunConfig config = config_of(GetParam().family, GetParam().degrees, GetParam().dispatch);
  const int size = GetParam().degrees.world();
  const Layout layout(config, size);
  std::vector<double> peaks(static_cast<size_t>(size));
  comm::run_device_ranks(size, [&](comm::World& world, at::Device device) {
    Mesh mesh(layout, world);
    if (size > 1) mesh.use(device);
    TrainState state(config, {}, mesh, {.device = device});
    initialize_parameters(config.model, 1, state.model.parameters);
    train_step(state, fixed_batch(config));
    guarded::queues().synchronize_all();
    world.all().barrier();
    const auto before = guarded::memory().asked();
    guarded::memory().reset_peak();
    train_step(state, fixed_batch(config));
    guarded::queues().synchronize_all();
    peaks[static_cast<size_t>(world.rank())] = static_cast<double>(guarded::memory().peak_asked() - before);
  });
  for (int rank = 0; rank < size; ++rank) {
    const double computed = count_activations(config, config.data.seq_len, layout, rank, kDeviceMultiplier).peak_bytes;
    const double found = peaks[static_cast<size_t>(rank)];
    EXPECT_NEAR(computed / found, 1, 0.1) << "rank " << rank << ": " << computed << " computed, " << found << " had";
    if (std::getenv("ATHANOR_PRINT_MEMORY"))
      fmt::print("{} rank {}: {:+.2f}% of {:.2f} MB\n", GetParam().name, rank, 100 * (computed / found - 1),
                 found / 1e6);
  }
}

}  // namespace
}  // namespace athanor::device_memory_test
