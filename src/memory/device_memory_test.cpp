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
#include "memory/memory_remedies.h"
#include "model/initialize.h"
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
