// Evaluation during training on the device that the host plays: the training keeps its bits, scores are the CPU's.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "base/testing/folder_test.h"
#include "eval/gate_evaluation.h"
#include "run/run.h"
#include "train/testing/device_case.h"
#include "train/testing/prepared_data.h"

namespace athanor::gate_device_test {
namespace {

namespace fs = std::filesystem;

class OnDeviceGate : public FolderTest {
 protected:
  void SetUp() override {
    FolderTest::SetUp();
    guarded::offer(true);
    write("tasks/texts.yaml",
          "task: texts\noutput_type: loglikelihood_rolling\ntest_split: test\ndoc_to_text: ''\ndoc_to_target: text\n"
          "metric_list: [{metric: byte_perplexity}]\n");
    std::string rows;
    for (int i = 0; i < 12; ++i)
      rows += "{\"text\": \"" + std::string("abcdefghijklmnopqrstuvwxyz").substr(static_cast<size_t>(i)) + "\"}\n";
    write("rows/texts.jsonl", rows);
  }
  void TearDown() override {
    guarded::offer(false);
    guarded::queues().set_order({});
    FolderTest::TearDown();
  }

  RunConfig run(const std::string& name, const std::string& family, const std::string& device, int64_t interval) {
    RunConfig config = small_device_run(family, "float32");
    config.train.device = device;
    config.train.steps = 4;
    config.train.run_dir = (folder_ / name).string();
    config.checkpoint.interval = 4;
    config.checkpoint.model_interval = 0;
    config.metrics.gemm_peak_tflops = 1;
    config.eval.interval = interval;
    config.eval.tasks = {"texts"};
    config.eval.include_paths = {(folder_ / "tasks").string()};
    config.eval.data = (folder_ / "rows").string();
    config.eval.batch_tokens = 64;
    config.data.sources.emplace_back();
    config.data.sources[0].path = (folder_ / "data").string();
    config.data.sources[0].weight = 1;
    if (!fs::exists(folder_ / "data")) write_prepared_data(folder_ / "data", config);
    return config;
  }
  // Returns the lines of metrics.jsonl.
  static std::vector<nlohmann::json> train(const RunConfig& config) {
    const OneRank alone(config);
    RunContext context;
    GateEvaluation evaluation;
    EXPECT_EQ(run_training(config, *alone.world, context, &evaluation), 0);
    std::vector<nlohmann::json> lines;
    std::istringstream text(read_file(fs::path(config.train.run_dir) / "metrics.jsonl"));
    for (std::string line; std::getline(text, line);) lines.push_back(nlohmann::json::parse(line));
    return lines;
  }
};

TEST_F(OnDeviceGate, TheTrainingHasTheSameBitsWithAndWithoutEvaluation) {
  guarded::queues().set_order({guarded::Order::Kind::kDrawn, 4});
  const auto plain = train(run("plain", "olmoe", "auto", 0)), evaluated = train(run("evaluated", "olmoe", "auto", 2));
  ASSERT_EQ(plain.size(), 4u);
  for (size_t i = 0; i < plain.size(); ++i) {
    for (const char* name : {"loss", "grad_norm", "aux_loss", "expert_load_max_over_mean", "changed_share"})
      EXPECT_EQ(plain[i][name], evaluated[i][name]) << name << " of step " << i + 1;
    EXPECT_EQ(evaluated[i].contains("evaluation"), i % 2 == 1);
  }
}

// The weights stay as they were initialised, so that only the evaluation differs. The perplexity is the exponential of
// a mean over bytes. Each byte's log-probability follows from sums of some hundred products, the errors of which are
// below 2^-24 of their terms; a hundred of them bound the mean.
TEST_F(OnDeviceGate, ScoresAreThoseOfTheCpu) {
  const auto value = [&](const std::string& device) {
    RunConfig config = run(device, "llama", device, 4);
    config.optimizer.lr = config.optimizer.min_lr = 1e-30;
    config.optimizer.weight_decay = 0;
    return train(config).back()["evaluation"]["texts"]["byte_perplexity"]["value"].get<double>();
  };
  const double expected = value("cpu");
  EXPECT_NEAR(value("auto"), expected, 100 * 0x1p-24 * expected);
}

}  // namespace
}  // namespace athanor::gate_device_test
