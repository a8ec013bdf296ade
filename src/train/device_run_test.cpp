// Whole runs on the device that the host plays.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "base/hash.h"
#include "base/random.h"
#include "base/testing/folder_test.h"
#include "dataset/manifest.h"
#include "dataset/npy.h"
#include "ops/device_choice.h"
#include "parallel/mesh.h"
#include "train/run.h"
#include "train/testing/device_case.h"

namespace athanor::device_run_test {
namespace {

namespace fs = std::filesystem;
using guarded::Order;

// A folder of data as `athanor prepare` writes it, with random tokens.
void write_data(const fs::path& folder, const RunConfig& config) {
  fs::create_directories(folder);
  nlohmann::json vocabulary;
  for (int64_t id = 0; id < config.model.vocab_size; ++id) vocabulary["t" + std::to_string(id)] = id;
  const nlohmann::json model = {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", nlohmann::json::array()}};
  write_file_atomically(folder / "tokenizer.json", nlohmann::json{{"model", model}}.dump());
  DataManifest manifest;
  manifest.tokenizer_file = "tokenizer.json";
  manifest.tokenizer_hash = hash_file(folder / "tokenizer.json");
  manifest.vocab_size = static_cast<uint32_t>(config.model.vocab_size);
  manifest.seq_len = config.data.seq_len;
  manifest.dtype = "uint16";
  const CounterRandom random(3, "tokens");
  PartEntry part;
  for (const auto& [split, rows] : {std::pair<std::string, int64_t>{"train", 128}, {"validation", 16}}) {
    std::vector<uint16_t> tokens(static_cast<size_t>(rows * config.data.seq_len));
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<uint16_t>(random.u64(i) % manifest.vocab_size);
    std::string bytes = npy_header(2, rows, config.data.seq_len);
    bytes.append(reinterpret_cast<const char*>(tokens.data()), 2 * tokens.size());
    const std::string file = split + "-00000.npy";
    write_file_atomically(folder / file, bytes);
    manifest.splits[split] = {rows, rows * config.data.seq_len, {{file, rows, hash_file(folder / file)}}};
    manifest.tokens += rows * config.data.seq_len;
    part.instances[split] = rows;
  }
  part.tokens = manifest.tokens;
  manifest.parts = {part};
  write_file_atomically(folder / kDataManifestName, data_manifest_text(manifest));
}

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
    config.data.sources = {};
    config.data.sources.emplace_back();
    config.data.sources[0].path = (folder_ / "data").string();
    config.data.sources[0].weight = 1;
    if (!fs::exists(folder_ / "data")) write_data(folder_ / "data", config);
    return config;
  }
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
  const auto model = [&](const char* name) {
    return read_file(folder_ / name / "models" / "step-00000006" / "model.safetensors");
  };
  EXPECT_EQ(model("whole"), model("parts"));
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
  RunConfig layers = run("c", "auto");
  layers.metrics.layer_statistics = 1;
  EXPECT_SAYS(answer(layers), "metrics.layer_statistics is 1");
  guarded::memory().set_limit(guarded::memory().allocated() + (size_t{1} << 20));
  EXPECT_SAYS(answer(run("d", "auto")), "this run needs about");
  EXPECT_SAYS(answer(run("d", "auto")), "are free there; a smaller model would fit");
  EXPECT_THROW(ops::choose_device("cuda", 2), ConfigError);
  EXPECT_TRUE(ops::choose_device("auto", 2).is_cpu());
}

}  // namespace
}  // namespace athanor::device_run_test
