// Whole runs on the device that the host plays.

#include <gtest/gtest.h>

#include <sys/wait.h>

#include <csignal>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <vector>

#include "base/failure.h"
#include "base/testing/folder_test.h"
#include "memory/memory_remedies.h"
#include "ops/device_choice.h"
#include "parallel/mesh.h"
#include "record/last_words.h"
#include "record/run_folder.h"
#include "run/run.h"
#include "train/testing/device_case.h"
#include "train/testing/prepared_data.h"

namespace athanor::device_run_test {
namespace {

namespace fs = std::filesystem;
using guarded::Order;

class OnDeviceRuns : public FolderTest {
 protected:
  void SetUp() override {
    FolderTest::SetUp();
    guarded::offer(true);
  }
  void TearDown() override {
    guarded::offer(false);
    guarded::queues().set_order({});
    guarded::memory().set_limit(SIZE_MAX);
    guarded::memory().fail_at(-1);
    FolderTest::TearDown();
  }
  RunConfig run(const std::string& name, const std::string& device) {
    RunConfig config = small_device_run("olmoe", "bfloat16");
    config.train.device = device;
    config.train.steps = 6;
    config.train.validation_interval = 3;
    config.train.run_dir = (folder_ / name).string();
    config.checkpoint.interval = 3;
    config.checkpoint.model_interval = 6;
    config.metrics.gemm_peak_tflops = 1;  // measuring it takes longer than such a run
    config.data.sources = {};
    config.data.sources.emplace_back();
    config.data.sources[0].path = (folder_ / "data").string();
    config.data.sources[0].weight = 1;
    if (!fs::exists(folder_ / "data")) write_prepared_data(folder_ / "data", config);
    return config;
  }
  void continues_with_the_bits(const std::vector<const char*>& faults);
  void ends_without_memory(int64_t first, int64_t apart);
  static int train(const RunConfig& config) {
    const OneRank alone(config);
    RunContext context;
    return run_training(config, *alone.world, context);
  }
  static std::vector<nlohmann::json> metrics(const RunConfig& config) {
    std::vector<nlohmann::json> lines;
    std::istringstream text(read_file(fs::path(config.train.run_dir) / "metrics.jsonl"));
    for (std::string line; std::getline(text, line);) lines.push_back(nlohmann::json::parse(line));
    return lines;
  }
};

TEST_F(OnDeviceRuns, ARunTrainsValidatesSavesAndContinuesThere) {
  guarded::queues().set_order({Order::Kind::kDrawn, 9});
  const RunConfig whole = run("whole", "auto"), on_host = run("on_host", "cpu");
  constexpr int64_t kOfOthers = 1 << 28;  // bytes that were in use before the run: the peak of no step
  at::empty({kOfOthers}, at::TensorOptions(guarded::device_of_tests()).dtype(at::kByte));
  ASSERT_EQ(train(whole), 0);
  ASSERT_EQ(train(on_host), 0);
  RunConfig parts = run("parts", "auto");
  parts.train.steps = 3;
  ASSERT_EQ(train(parts), 0);
  parts.train.steps = 6;
  ASSERT_EQ(train(parts), 0);
  const auto there = metrics(whole), resumed = metrics(parts), expected = metrics(on_host);
  ASSERT_EQ(there.size(), 6u);
  ASSERT_EQ(resumed.size(), 6u);
  const auto value = [](const nlohmann::json& line, const char* field) { return line.at(field).get<double>(); };
  for (size_t i = 0; i < there.size(); ++i) {
    EXPECT_EQ(value(there[i], "loss"), value(resumed[i], "loss")) << "step " << i + 1;
    // bf16 rounds each of some ten numbers that a loss of about 5 nats goes through.
    EXPECT_NEAR(value(there[i], "loss"), value(expected[i], "loss"), 10 * 5 * 0x1p-9) << "step " << i + 1;
  }
  EXPECT_EQ(value(there[5], "validation_loss"), value(resumed[5], "validation_loss"));
  // Tokens and targets go there, some with the step before; the numbers of the step come back. The first step also
  // sends the angles of positions.
  double copies = 0;
  for (const auto& line : there) {
    copies += value(line, "copies_to_device");
    EXPECT_EQ(value(line, "copies_to_host"), 1);
    EXPECT_EQ(value(line, "device_waits"), 1);
  }
  EXPECT_EQ(copies, 6 + 1);
  const double need = memory_of_rank(whole, Layout(whole, 1), 0).state_bytes;
  for (const auto& line : there) {
    EXPECT_GE(value(line, "device_memory_bytes"), need);  // weights, gradients and moments stay there
    EXPECT_GT(value(line, "peak_device_memory_bytes"), value(line, "device_memory_bytes"));  // and activations come
    EXPECT_LT(value(line, "peak_device_memory_bytes"), kOfOthers);
    EXPECT_GE(value(line, "held_device_memory_bytes"), value(line, "peak_device_memory_bytes"));
  }
  EXPECT_FALSE(expected[0].contains("device_memory_bytes"));
  EXPECT_FALSE(expected[0].contains("device_waits"));
  const auto start_of = [&](const char* name) {
    const std::string events = read_file(folder_ / name / "events.jsonl");
    return nlohmann::json::parse(events.substr(0, events.find('\n')));
  };
  const at::Device device = guarded::device_of_tests();
  EXPECT_EQ(start_of("whole").at("device").at("kind"), device.str());
  if (device == guarded::kDevice) {
    EXPECT_EQ(start_of("whole").at("device").at("memory_bytes"), int64_t{16} << 30);
  }
  EXPECT_FALSE(start_of("on_host").contains("device"));
  const auto model = [&](const char* name) {
    return read_file(folder_ / name / "models" / "step-00000006" / "model.safetensors");
  };
  EXPECT_EQ(model("whole"), model("parts"));
}

// The child of the test below: it trains in the folder that the environment names.
TEST_F(OnDeviceRuns, AChildTrainsWhereItIsTold) {
  const char* folder = std::getenv("ATHANOR_TEST_RUN");
  if (!folder) GTEST_SKIP() << "only for the test that starts it";
  const fs::path own = std::exchange(folder_, folder);
  train(run("killed", "auto"));
  folder_ = own;
}

const std::vector<const char*> kKillingFaults = {"train.after_step:kill@5", "checkpoint.piece:kill@4",
                                                 "checkpoint.before_commit:kill", "export.before_commit:kill"};

// Kills a run at each of the faults, and continues it.
void OnDeviceRuns::continues_with_the_bits(const std::vector<const char*>& faults) {
  const RunConfig whole = run("whole", "auto"), killed = run("killed", "auto");
  ASSERT_EQ(train(whole), 0);
  const std::string self = fs::read_symlink("/proc/self/exe").string();
  for (const char* fault : faults) {
    fs::remove_all(killed.train.run_dir);
    // The child runs its test whichever share of the tests this program was given.
    const std::string command = fmt::format(
        "exec env -u GTEST_TOTAL_SHARDS -u GTEST_SHARD_INDEX ATHANOR_FAULT={} ATHANOR_TEST_RUN='{}' '{}' "
        "--gtest_filter=OnDeviceRuns.AChild* "
        "> '{}' 2>&1",
        fault, folder_.string(), self, (folder_ / "child.log").string());
    const int status = std::system(command.c_str());
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << fault << read_file(folder_ / "child.log");
    ASSERT_EQ(train(killed), 0) << fault;
    const auto expected = metrics(whole), found = metrics(killed);
    ASSERT_EQ(found.size(), expected.size()) << fault;
    for (size_t i = 0; i < found.size(); ++i) EXPECT_EQ(found[i].at("loss"), expected[i].at("loss")) << fault;
    const auto model = [&](const RunConfig& config) {
      return read_file(fs::path(config.train.run_dir) / "models" / "step-00000006" / "model.safetensors");
    };
    EXPECT_EQ(model(killed), model(whole)) << fault;
  }
}

TEST_F(OnDeviceRuns, ARunThatWasKilledContinuesWithTheBitsOfOneThatWasNot) {
  const bool is_guarded = guarded::device_of_tests() == guarded::kDevice;
  continues_with_the_bits(is_guarded ? std::vector{kKillingFaults.front()} : kKillingFaults);
}
class TestAllOnDeviceRuns : public OnDeviceRuns {};
TEST_F(TestAllOnDeviceRuns, ARunThatWasKilledContinuesWithTheBitsOfOneThatWasNot) {
  continues_with_the_bits(kKillingFaults);
}

TEST_F(OnDeviceRuns, WhatCannotBeIsRefusedInOneLineBeforeTheFolderIsMade) {
  const auto answer = [&](const RunConfig& config) {
    const std::string said = refusal<ConfigError>([&] { train(config); });
    EXPECT_EQ(said.find('\n'), said.npos) << said;
    EXPECT_FALSE(fs::exists(config.train.run_dir) && !fs::is_empty(config.train.run_dir)) << said;
    return said;
  };
  if (!at::hasCUDA()) {
    EXPECT_SAYS(answer(run("a", "cuda")), "train.device is cuda: ");
  }
  EXPECT_SAYS(answer(run("b", "xpu")), "train.device is xpu: libtorch sees no XPU device; set train.device = \"cpu\"");
  guarded::memory().set_limit(guarded::memory().allocated() + (size_t{1} << 20));
  EXPECT_SAYS(answer(run("d", "auto")), "this run needs about");
  EXPECT_SAYS(answer(run("d", "auto")),
              "are free there; no setting makes it fit, and no number of ranks along one axis: a smaller model would");
  RunConfig large = run("e", "auto");
  large.train.global_batch_size = large.train.micro_batch_size = 64;
  const MemoryNeed need = need_of_device(large, {});
  // Settings change all of it but the workspaces.
  const double free = need.workspace_bytes + 0.8 * (need.total() - need.workspace_bytes);
  guarded::memory().set_limit(guarded::memory().allocated() + static_cast<size_t>(free));
  EXPECT_SAYS(answer(large), "of masters and moments, ");
  EXPECT_SAYS(answer(large), "are free there; train.micro_batch_size = ");
}

// Whichever allocation fails once a run has begun, the run ends with the same exit code and one line, which its last
// words have as well. The allocations that fail are some in the second half of a run, evenly spread.
void OnDeviceRuns::ends_without_memory(int64_t first, int64_t apart) {
  const auto small = [&](const std::string& name) {
    RunConfig config = run(name, "auto");
    config.train.steps = 2;
    config.train.validation_interval = 1;
    config.checkpoint.interval = config.checkpoint.model_interval = 0;
    return config;
  };
  guarded::memory().fail_at(-1);
  ASSERT_EQ(train(small("whole")), 0);
  const int64_t all = guarded::memory().fail_at(-1);
  std::set<std::string> phases;
  for (int64_t i = first; i <= 12; i += apart) {
    const RunConfig config = small(fmt::format("fails_{}", i));
    const OneRank alone(config);
    RunContext context;
    guarded::memory().fail_at(all - 1 - all * i / 24);
    try {
      run_training(config, *alone.world, context);
      ADD_FAILURE() << "allocation " << i << " of 24 did not fail";
    } catch (...) {
      const Failure failure = describe_failure(std::current_exception(), context.in_run());
      EXPECT_EQ(failure.exit_code, exit_code::kMemory) << failure.message;
      EXPECT_EQ(failure.message.find('\n'), failure.message.npos);
      EXPECT_TRUE(failure.message.starts_with(fmt::format("step {}: out of memory on ", context.step.load())))
          << failure.message;
      leave_last_words(context.moment(), 0, "node1", failure);
      phases.insert(context.phase.load());
      const auto words = nlohmann::json::parse(read_file(RunFolder{config.train.run_dir}.last_words()));
      EXPECT_EQ(words.at("cause"), "memory");
      EXPECT_EQ(words.at("text"), failure.message);
      EXPECT_EQ(words.at("phase"), context.phase.load());
    }
    guarded::memory().fail_at(-1);
  }
  EXPECT_EQ(phases, (std::set<std::string>{"step", "validate"}));
}
TEST_F(OnDeviceRuns, WithoutMemoryEndWithTheirOwnCodeAndOneLineInEachPhase) { ends_without_memory(1, 3); }
TEST_F(TestAllOnDeviceRuns, WithoutMemoryEndWithTheirOwnCodeAndOneLineInEachPhase) { ends_without_memory(1, 1); }

}  // namespace
}  // namespace athanor::device_run_test
