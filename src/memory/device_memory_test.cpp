#include "memory/device_memory.h"

#include <ATen/record_function.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gtest/gtest.h>

#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/testing/folder_test.h"
#include "base/testing/test_all.h"
#include "base/text.h"
#include "comm/testing/guarded_groups.h"
#include "layout/device_workspace.h"
#include "layout/holding.h"
#include "layout/update_cost.h"
#include "memory/memory_remedies.h"
#include "model/initialize.h"
#include "optim/home_matrices.h"
#include "parallel/testing/small_layouts.h"
#include "train/testing/batches.h"
#include "train/testing/device_case.h"
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
  const double need = need_of_device(config, {0, 4}).total();
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
  std::string dispatch = "allgather", dtype = "bfloat16", scope = "instance";
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

class OnDeviceMemory : public testing::TestWithParam<Case> {};
const std::vector<Case> kAllCases = {
    {"one_olmoe", "olmoe", {1, 1, 1, "none"}},
    {"one_llama", "llama", {1, 1, 1, "none"}},
    {"documents", "llama", {1, 1, 1, "none"}, "allgather", "bfloat16", "document"},
    {"fp32", "llama", {1, 1, 1, "none"}, "allgather", "float32"},
    {"fp32_documents", "llama", {1, 1, 1, "none"}, "allgather", "float32", "document"},
    {"allgather2", "olmoe", {1, 2, 2, "ep_aware"}},
    {"allgather4", "olmoe", {1, 4, 4, "ep_aware"}},
    {"all_to_all4", "olmoe", {1, 4, 4, "ep_aware"}, "all_to_all"},
    {"tensor2", "llama", {1, 1, 1, "none", 2, 1}},
    {"pipeline2", "qwen3_moe", {1, 1, 1, "none", 1, 2}},
};
// Each family, type, scope, dispatch and axis once, on two ranks at most.
const std::vector<Case> kDiagonal = {
    {"fp32_documents", "llama", {1, 1, 1, "none"}, "allgather", "float32", "document"},
    {"allgather2", "olmoe", {1, 2, 2, "ep_aware"}},
    {"all_to_all2", "olmoe", {1, 2, 2, "ep_aware"}, "all_to_all"},
    {"tensor2", "llama", {1, 1, 1, "none", 2, 1}},
    {"pipeline2", "qwen3_moe", {1, 1, 1, "none", 1, 2}},
};
INSTANTIATE_TEST_SUITE_P(Layouts, OnDeviceMemory, testing::ValuesIn(kDiagonal),
                         [](const auto& each) { return each.param.name; });
INSTANTIATE_TEST_SUITE_P(TestAll, OnDeviceMemory, testing::ValuesIn(kAllCases),
                         [](const auto& each) { return each.param.name; });

TEST_P(OnDeviceMemory, OfActivationsIsThatOfTheFormulaWithinFivePercentAndWithMessagesWithinTen) {
  RunConfig config = config_of(GetParam().family, GetParam().degrees, GetParam().dispatch);
  config.train.dtype = GetParam().dtype;
  config.data.attention_scope = GetParam().scope;
  const int size = GetParam().degrees.world();
  if (!test::is_of_test_all()) config.train.global_batch_size = 8;  // two microbatches on a rank at most
  const Layout layout(config, size);
  std::vector<double> peaks(static_cast<size_t>(size));
  comm::run_device_ranks(size, [&](comm::World& world, at::Device device) {
    Mesh mesh(layout, world);
    if (size > 1) mesh.use(device);
    DataIdentity data;
    data.eos_id = static_cast<uint32_t>(config.model.vocab_size);  // no document is so short that tables grow
    TrainState state(config, data, mesh, {.device = device});
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
  // The host runs ahead of a device, so how many messages of a pipeline are kept until they have been sent differs.
  const double tolerance = GetParam().degrees.pipeline > 1 ? 0.1 : 0.05;
  for (int rank = 0; rank < size; ++rank) {
    const double computed = count_activations(config, config.data.seq_len, layout, rank, kDeviceMultiplier).peak_bytes;
    const double found = peaks[static_cast<size_t>(rank)];
    EXPECT_NEAR(computed / found, 1, tolerance)
        << "rank " << rank << ": " << computed << " computed, " << found << " had";
    if (std::getenv("ATHANOR_PRINT_MEMORY"))
      fmt::print("{} rank {}: {:+.2f}% of {:.2f} MB\n", GetParam().name, rank, 100 * (computed / found - 1),
                 found / 1e6);
  }
}

// Muon's exchanges, as HomeMatrices makes them; what the products take is tested in ops/newton_schulz_test.cpp.
TEST(OnDeviceMemory, OfAnUpdateIsThatOfTheFormula) {
  for (const Degrees& degrees : {Degrees{1, 1, 1, "none"}, {1, 4, 2, "ep_aware"}, {1, 2, 1, "optimizer", 2, 1}}) {
    RunConfig config = config_of("olmoe", degrees, "allgather");
    config.optimizer.name = "muon";
    const int size = degrees.world();
    const Layout layout(config, size);
    comm::run_device_ranks(size, [&](comm::World& world, at::Device device) {
      Mesh mesh(layout, world);
      if (size > 1) mesh.use(device);
      const ShardPlan shards(mesh, config.parallelism.sharding);
      const ParameterStore store(
          make_bucket_entries(held_parameters(config.model, config.parallelism, layout, world.rank())), at::kFloat,
          ParameterStore::Use::kTraining, shards.sharding(bucket_elements(config)), device);
      const HomeMatrices homes(store, shards);
      std::vector<const BucketEntry*> entries;
      for (const BucketEntry& entry : store.table())
        if (is_muon_role(entry.role)) entries.push_back(&entry);
      const HomePlan plan = homes.plan(entries);
      const UpdateCost cost = count_update_cost(config, layout, world.rank(), store.table(), store.buckets());
      guarded::queues().synchronize_all();
      world.all().barrier();
      const auto before = guarded::memory().asked();
      guarded::memory().reset_peak();
      homes.update(plan, store.grad(), [](std::span<const HomeStack>) {});
      guarded::queues().synchronize_all();
      const auto taken = static_cast<double>(guarded::memory().peak_asked() - before);
      // Between the two, by how far the host is ahead.
      EXPECT_GE(taken, 0.95 * (cost.held_bytes + cost.exchange_bytes)) << size << " ranks, " << world.rank();
      EXPECT_LE(taken, 1.05 * (cost.held_bytes + cost.all_exchanges_bytes)) << size << " ranks, " << world.rank();
      int64_t computed = 0;
      for (const auto& [shape, count] : cost.computed) computed += count * shape.first * shape.second;
      EXPECT_EQ(computed, plan.home_elements());
    });
  }
}

// ---- who multiplies on a device

using Multipliers = std::set<std::pair<std::thread::id, c10::StreamId>>;

Multipliers& multipliers() {
  static Multipliers them;
  return them;
}

// Called before each op of libtorch.
std::unique_ptr<at::ObserverContext> note_product(const at::RecordFunction& op) {
  static std::mutex mutex;
  for (const char* product : {"aten::mm", "aten::mm.out", "aten::mm.dtype", "aten::addmm_", "aten::addmm.out"}) {
    const auto schema = op.operator_name();
    if (!schema || c10::toString(*schema) != product || !op.inputs()[0].isTensor()) continue;
    const at::Device device = op.inputs()[0].toTensor().device();
    if (device.is_cpu()) continue;  // a played product, computed by the host
    const std::lock_guard lock(mutex);
    multipliers().emplace(std::this_thread::get_id(),
                          c10::impl::VirtualGuardImpl(device.type()).getStream(device).id());
  }
  return nullptr;
}

// As layout/device_workspace.h counts them: libtorch has a handle of cuBLAS for each thread, and a workspace for each
// handle and stream.
TEST(OnDeviceMemory, ProductsAreQueuedByTwoThreadsOnOneStream) {
  for (const bool recomputes : {false, true}) {
    RunConfig config = small_device_run("olmoe", "bfloat16");
    if (recomputes) config.parallelism.recompute = {"layer"};
    TrainState state(config, {}, {.device = guarded::device_of_tests()});
    initialize_parameters(config.model, 1, state.model.parameters);
    multipliers().clear();
    const auto handle = at::addGlobalCallback(at::RecordFunctionCallback(note_product).needsInputs(true));
    train_step(state, fixed_batch(config));
    train_step(state, fixed_batch(config));
    guarded::queues().synchronize_all();
    at::removeCallback(handle);
    EXPECT_EQ(multipliers().size(), static_cast<size_t>(count_cublas_workspaces(/*records_graph=*/false)));
    std::set<c10::StreamId> streams;
    for (const auto& [thread, stream] : multipliers()) streams.insert(stream);
    EXPECT_EQ(streams.size(), 1U);
  }
}

}  // namespace
}  // namespace athanor::device_memory_test
