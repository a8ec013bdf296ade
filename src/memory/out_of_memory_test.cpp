#include "memory/out_of_memory.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "base/testing/folder_test.h"
#include "base/text.h"
#include "memory/memory_remedies.h"
#include "model/initialize.h"
#include "ops/graph.h"
#include "train/testing/batches.h"
#include "train/testing/device_case.h"
#include "train/train_step.h"

namespace athanor::out_of_memory_test {
namespace {

constexpr double kMiB = 0x1p20, kGiB = 0x1p30;

TEST(FailedAllocation, IsReadFromWhatCudaSays) {
  const auto plain = read_failed_allocation(
      "CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 79.10 GiB of which 512.00 MiB is "
      "free. Process 4711 has 78.50 GiB memory in use. Of the allocated memory 70.25 GiB is allocated by PyTorch, and "
      "7.75 GiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting …");
  EXPECT_EQ(plain.asked, 2.5 * kGiB);
  EXPECT_EQ(plain.in_use, 70.25 * kGiB);
  EXPECT_EQ(plain.kept, 7.75 * kGiB);
  EXPECT_EQ(plain.free, 512 * kMiB);
  const auto with_graphs = read_failed_allocation(
      "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 79.10 GiB of which 512 bytes is "
      "free. Of the allocated memory 70.25 GiB is allocated by PyTorch, with 3.00 GiB allocated in private pools "
      "(e.g., CUDA Graphs), and 1.50 KiB is reserved by PyTorch but unallocated.");
  EXPECT_EQ(with_graphs.in_use, 70.25 * kGiB);
  EXPECT_EQ(with_graphs.kept, 1536);
  EXPECT_EQ(with_graphs.free, 512);
}

TEST(FailedAllocation, WhatAMessageDoesNotStateIsNotMadeUp) {
  const auto huge = read_failed_allocation("CUDA out of memory. Tried to allocate more than 1EB memory.");
  for (const double each : {huge.asked, huge.in_use, huge.kept, huge.free}) EXPECT_EQ(each, -1);
  const auto without_free = read_failed_allocation(
      "XPU out of memory. Tried to allocate 1.00 MiB. GPU 0 has a total "
      "capacity of 48.00 GiB. Of the allocated memory 40.00 GiB is "
      "allocated by PyTorch, and 0 bytes is reserved by PyTorch but "
      "unallocated.");
  EXPECT_EQ(without_free.asked, kMiB);
  EXPECT_EQ(without_free.kept, 0);
  EXPECT_EQ(without_free.free, -1);
  EXPECT_EQ(read_failed_allocation("").asked, -1);
}

RunConfig remedy_case() {
  RunConfig config = small_device_run("olmoe", "bfloat16");
  config.train.global_batch_size = 12;
  config.train.micro_batch_size = 6;
  config.data.seq_len = 256;
  config.model.vocab_size = 8192;
  return config;
}

TEST(MemoryRemedies, StateWhatTheEstimateIsWithThem) {
  const RunConfig config = remedy_case();
  const auto remedies = memory_remedies(config);
  ASSERT_EQ(remedies.size(), 5u);
  EXPECT_TRUE(remedies[3].empty()) << "there are no graphs to leave out";
  std::vector<std::string> settings;
  for (const auto& of_setting : remedies)
    for (const auto& each : of_setting) settings.push_back(each.setting);
  for (const char* setting : {"train.micro_batch_size = 4", "train.micro_batch_size = 3", "train.micro_batch_size = 2",
                              "train.micro_batch_size = 1", "parallelism.recompute = [\"layer\"]",
                              "parallelism.recompute = [\"moe\"]", "train.loss_chunk_tokens = 64"})
    EXPECT_EQ(std::ranges::count(settings, setting), 1) << setting;
  EXPECT_EQ(std::ranges::count(settings, "train.micro_batch_size = 5"), 0);  // does not divide 12 sequences
  RunConfig changed = config;
  changed.train.micro_batch_size = 4;
  EXPECT_EQ(remedies[0].front().need.total(), need_of_device(changed, {}).total());
  EXPECT_EQ(remedies[0].front().setting, "train.micro_batch_size = 4");
}

TEST(MemoryRemedies, LeaveOutGraphsWhereThereAreSome) {
  RunConfig config = remedy_case();
  const double plain = need_of_device(config, {}).total();
  config.train.cuda_graphs = true;
  const auto graphs = memory_remedies(config).at(3);
  ASSERT_EQ(graphs.size(), 1u);
  EXPECT_EQ(graphs[0].setting, "train.cuda_graphs = false");
  EXPECT_EQ(graphs[0].need.total(), plain);
  EXPECT_SAYS(what_would_fit(config, plain), fmt::format("train.cuda_graphs = false ({})", format_bytes(plain)));
}

TEST(MemoryRemedies, NameOnlyWhatFits) {
  const RunConfig config = remedy_case();
  const auto remedies = memory_remedies(config);
  const auto& strongest = remedies[0].back();
  const std::string said = what_would_fit(config, strongest.need.total());
  EXPECT_SAYS(said, strongest.setting);
  EXPECT_SAYS(said, "would fit");
  EXPECT_EQ(what_would_fit(config, strongest.need.total() - 1).find("micro_batch_size = 1 ("), std::string::npos);
  double least = strongest.need.total();
  for (const auto& of_setting : remedies)
    for (const auto& each : of_setting) least = std::min(least, each.need.total());
  EXPECT_SAYS(what_would_fit(config, least - 1), " together (");
  EXPECT_SAYS(what_would_fit(config, 1000), "a smaller model would");
}

// Leaves no memory at one place of a step.
class NoMemoryAt : public Observer {
 public:
  NoMemoryAt(std::string place, Observation::Phase phase) : place_(std::move(place)), phase_(phase) {}
  void observe(const Observation& at) override {
    if (at.place == place_ && at.phase == phase_) guarded::memory().set_limit(guarded::memory().allocated());
  }

 private:
  std::string place_;
  Observation::Phase phase_;
};

TEST(OnDeviceOutOfMemory, InForwardAndInBackwardTheLineHasTheNumbersAndTheRemedies) {
  const RunConfig config = small_device_run("qwen3_moe", "bfloat16");
  for (const auto phase : {Observation::Phase::kForward, Observation::Phase::kBackward}) {
    TrainState state(config, {}, {.device = guarded::device_of_tests()});
    initialize_parameters(config.model, 7, state.model.parameters);
    train_step(state, fixed_batch(config));
    state.observers.add(std::make_shared<NoMemoryAt>("model.layers.1", phase));
    const auto before = static_cast<double>(guarded::memory().allocated());
    std::string said;
    double in_use = 0;
    try {
      train_step(state, fixed_batch(config));
    } catch (const c10::OutOfMemoryError& error) {
      in_use = read_failed_allocation(error.what_without_backtrace()).in_use;
      said = describe_out_of_memory(state, 2, error);
    }
    guarded::memory().set_limit(SIZE_MAX);
    guarded::queues().synchronize_all();
    EXPECT_GT(in_use, before);  // with the activations of that moment
    const auto state_bytes = static_cast<double>(
        state.model.parameters.compute().nbytes() + state.model.parameters.grad().nbytes() +
        state.model.parameters.master_low().nbytes() + static_cast<size_t>(state.optimizer.set.state_bytes()));
    EXPECT_EQ(said.find('\n'), said.npos) << said;
    EXPECT_SAYS(said, "step 2: out of memory on guarded:0: ");
    EXPECT_SAYS(said, fmt::format("{} are in use, 0B kept for reuse and 0B free", format_bytes(in_use)));
    EXPECT_SAYS(said, fmt::format("{} activations and scratch", format_bytes(in_use - state_bytes)));
    EXPECT_SAYS(said, "train.micro_batch_size = 1 (");
    EXPECT_SAYS(said, "parallelism.recompute = [");
  }
}

TEST(OnDeviceOutOfMemory, TheLineNamesWhatRecordedGraphsHold) {
  RunConfig config = small_device_run("qwen3_moe", "bfloat16");
  config.train.cuda_graphs = true;
  TrainState state(config, {}, {.device = guarded::device_of_tests()});
  initialize_parameters(config.model, 7, state.model.parameters);
  const auto step_without_memory = [&] {
    guarded::memory().set_limit(0);
    std::string said;
    try {
      train_step(state, fixed_batch(config));
    } catch (const c10::OutOfMemoryError& error) {
      said = describe_out_of_memory(state, 4, error);
    }
    guarded::memory().set_limit(SIZE_MAX);
    guarded::queues().synchronize_all();
    return said;
  };
  EXPECT_EQ(step_without_memory().find("recorded graphs"), std::string::npos) << "there are none yet";
  for (int step = 0; step < 3; ++step) train_step(state, fixed_batch(config));
  const auto graphs = static_cast<double>(ops::Graph::held_bytes_of_all());
  EXPECT_GT(graphs, need_of_device(config, {}).activation_bytes);
  EXPECT_SAYS(step_without_memory(), fmt::format(" gradients, {} held by recorded graphs, and ", format_bytes(graphs)));
}

}  // namespace
}  // namespace athanor::out_of_memory_test
