// Models in use on the device that the host plays, compared with the CPU.

#include <gtest/gtest.h>

#include <map>

#include "base/testing/folder_test.h"
#include "eval/forest_scorer.h"
#include "eval/generation.h"
#include "eval/score.h"

#include "ops/testing/other_orders.h"
#include "ops/transfer.h"
#include "run/run.h"
#include "train/testing/device_case.h"
#include "train/testing/prepared_data.h"

namespace athanor::eval_device_test {
namespace {

namespace fs = std::filesystem;
using guarded::Order;

struct Way;

class OnDeviceModels : public FolderTest {
 protected:
  void continue_greedily(const std::vector<Way>& ways);
  void TearDown() override {
    guarded::offer(false);
    guarded::queues().set_order({});
    guarded::set_kernels(true);
    FolderTest::TearDown();
  }
  // The folder of a run that has taken two steps on the CPU.
  fs::path trained(const std::string& family) const {
    RunConfig config = small_device_run(family, "float32");
    config.train.device = "cpu";
    config.train.steps = 2;
    config.train.run_dir = (folder_ / family).string();
    config.metrics.gemm_peak_tflops = 1;
    config.checkpoint.model_interval = 0;
    config.data.sources.emplace_back();
    config.data.sources[0].path = (folder_ / (family + "_data")).string();
    config.data.sources[0].weight = 1;
    write_prepared_data(config.data.sources[0].path, config);
    const OneRank alone(config);
    RunContext context;
    EXPECT_EQ(run_training(config, *alone.world, context), 0);
    return config.train.run_dir;
  }
};

// Prompts of the letters that the small tokenizer knows, of different lengths.
std::vector<std::string> some_prompts() { return {"athanor", "a", "nothat", "tar", "oh", "ranathat"}; }

class KeptAnswers : public ContinuationReader {
 public:
  void add(const Continuation&, std::string_view) override {}
  void end(const Continuation& answer) override { answers[answer.index] = answer.new_ids; }
  size_t num_written() const override { return answers.size(); }
  std::map<size_t, std::vector<uint32_t>> answers;
};

std::map<size_t, std::vector<uint32_t>> continued(const LoadedModel& model, const std::vector<std::string>& prompts,
                                                  const GenerationOptions& options) {
  KeptAnswers answers;
  generate(model, options, listed_prompts(prompts, "--prompt").get(), &answers);
  return answers.answers;
}

struct Way {
  bool kernels;
  Order order;
};

void OnDeviceModels::continue_greedily(const std::vector<Way>& ways) {
  for (const char* family : {"llama", "qwen3_moe", "gpt2", "olmo3"}) {
    const fs::path run = trained(family);
    const GenerationOptions options{.max_new_tokens = 20, .sampling = {.temperature = 0}, .batch_size = 4};
    const auto on = [&](at::Device device) {
      return continued(load_model(run, {.chunk_tokens = 64, .device = device}), some_prompts(), options);
    };
    const auto expected = on(at::kCPU);
    ASSERT_EQ(expected.size(), 6u);
    for (const auto& [kernels, order] : ways) {
      guarded::set_kernels(kernels);
      guarded::queues().set_order(order);
      EXPECT_EQ(on(guarded::kDevice), expected) << family << (kernels ? " with" : " without") << " kernels";
    }
    guarded::set_kernels(true);
    guarded::queues().set_order({});
  }
}

TEST_F(OnDeviceModels, ContinueTextsGreedilyAsOnTheCpu) {
  continue_greedily({{true, {Order::Kind::kLatest}}, {true, {Order::Kind::kDrawn, 5}}, {false, {}}});
}
class TestAllOnDeviceModels : public OnDeviceModels {};
TEST_F(TestAllOnDeviceModels, ContinueTextsGreedilyAsOnTheCpu) {
  std::vector<Way> all;
  for (const bool kernels : {true, false})
    for (const Order& order : {Order{}, Order{Order::Kind::kLatest}, Order{Order::Kind::kDrawn, 5}})
      all.push_back({kernels, order});
  continue_greedily(all);
}

// The first token of all texts, and six more: each pass fetches the logits of all texts together. Whole numbers and
// the angles of positions go there, and once the tables of the new texts.
TEST_F(OnDeviceModels, ATokenOfAllTextsCostsOneFetchAndOneWait) {
  const LoadedModel model = load_model(trained("llama"), {.chunk_tokens = 64, .device = guarded::kDevice});
  for (const size_t count : {1, 6}) {
    auto prompts = some_prompts();
    prompts.resize(count);
    const auto copies = guarded::copy_counts();
    const int64_t waits = guarded::queues().counts().waits;
    const auto before = ops::transfer_counts();
    continued(model, prompts, {.max_new_tokens = 7, .sampling = {.temperature = 0.5, .top_p = 0.9}});
    const auto counts = ops::transfer_counts() - before;
    EXPECT_EQ(counts.copies_to_host, 7);
    EXPECT_EQ(counts.waits, 7);
    EXPECT_EQ(counts.copies_to_device, 15);
    EXPECT_EQ(guarded::copy_counts().to_host - copies.to_host, 7);
    EXPECT_EQ(guarded::copy_counts().to_device - copies.to_device, 15);
    EXPECT_EQ(guarded::queues().counts().waits - waits, 7);
  }
}

// Whatever the number of texts, a token of all of them queues the same number of kernels.
TEST_F(OnDeviceModels, ATokenOfManyTextsQueuesAsManyKernelsAsOneOfTwo) {
  const LoadedModel model = load_model(trained("llama"), {.chunk_tokens = 64, .device = guarded::kDevice});
  const auto launches = [&](size_t count, int64_t tokens) {
    const auto before = guarded::queues().counts().launches;
    continued(model, std::vector<std::string>(count, "athanor"),
              {.max_new_tokens = tokens, .sampling = {.temperature = 0}});
    return guarded::queues().counts().launches - before;
  };
  EXPECT_EQ(launches(9, 6) - launches(9, 3), launches(2, 6) - launches(2, 3));
}

std::vector<TokenScore> scores_on(const std::string& device, const fs::path& run) {
  return TextScorer(run, {.device = device, .chunk_tokens = 5}).score("athanor").tokens;
}

double largest_difference(const std::vector<TokenScore>& a, const std::vector<TokenScore>& b) {
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i)
    largest = std::max<double>(largest, std::abs(a[i].log_probability - b[i].log_probability));
  return largest;
}

TEST_F(OnDeviceModels, ScoreATextAsOnTheCpu) {
  const fs::path run = trained("qwen3_moe");
  const auto expected = scores_on("cpu", run);
  ASSERT_GE(expected.size(), 6u);
  const double rounding =
      ops::test::difference_of_paths([&] { return largest_difference(expected, scores_on("cpu", run)); });
  guarded::offer(true);
  guarded::queues().set_order({Order::Kind::kDrawn, 3});
  const auto before = guarded::queues().counts().launches;
  const auto there = scores_on("auto", run);
  EXPECT_GT(guarded::queues().counts().launches, before);
  ASSERT_EQ(there.size(), expected.size());
  EXPECT_LE(largest_difference(expected, there),
            ops::test::rounding_bound(rounding, small_device_run("qwen3_moe", "float32").model.hidden_size));
  for (size_t i = 0; i < there.size(); ++i) EXPECT_EQ(there[i].is_greedy, expected[i].is_greedy);
}

// Four answers each to three questions with the same beginning.
std::vector<SequenceScore> forest_scores(const fs::path& run, at::Device device) {
  std::vector<std::vector<int32_t>> texts;
  for (int32_t question = 0; question < 3; ++question) {
    for (int32_t answer = 0; answer < 4; ++answer) {
      std::vector<int32_t> text = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8};
      for (int32_t i = 0; i < 3 + question; ++i) text.push_back(question + i);
      text.insert(text.end(), {answer, question, 2});
      texts.push_back(std::move(text));
    }
  }
  std::vector<ScoredSequence> sequences;
  for (const auto& text : texts) sequences.push_back({text, 3});
  LoadedModel model = load_model(run, {at::kFloat, 5, device});
  const ForestBatches batches{pack_sequences(sequences, 40), std::ssize(sequences)};
  EXPECT_GT(batches.batches.size(), 1u);
  return *score_forests(*model.state, &batches);
}

double largest_difference(const std::vector<SequenceScore>& a, const std::vector<SequenceScore>& b) {
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i)
    largest = std::max(largest, std::abs(a[i].log_likelihood - b[i].log_likelihood));
  return largest;
}

TEST_F(OnDeviceModels, ScoreTextsThatBeginAlikeAsOnTheCpu) {
  for (const char* family : {"llama", "qwen3_moe"}) {
    const fs::path run = trained(family);
    const auto expected = forest_scores(run, at::kCPU);
    ASSERT_EQ(expected.size(), 12u);
    const double rounding =
        ops::test::difference_of_paths([&] { return largest_difference(expected, forest_scores(run, at::kCPU)); });
    const double bound = ops::test::rounding_bound(rounding, small_device_run(family, "float32").model.hidden_size);
    for (const Order& order : {Order{}, Order{Order::Kind::kLatest}, Order{Order::Kind::kDrawn, 5}}) {
      guarded::queues().set_order(order);
      const auto there = forest_scores(run, guarded::kDevice);
      EXPECT_LE(largest_difference(expected, there), bound) << family;
      for (size_t i = 0; i < there.size(); ++i) EXPECT_EQ(there[i].is_greedy, expected[i].is_greedy);
    }
    guarded::queues().set_order({});
  }
}

TEST_F(OnDeviceModels, ADeviceThatIsNotThereIsRefusedInOneLine) {
  if (at::hasXPU()) GTEST_SKIP() << "this machine has an XPU device";
  const std::string said = refusal<ConfigError>([&] { scores_on("xpu", folder_); });
  EXPECT_EQ(said,
            "ScoringOptions::device is xpu: libtorch sees no XPU device; set it to \"cpu\" to compute on the CPU");
}

}  // namespace
}  // namespace athanor::eval_device_test
