#include "watch/expert_watch.h"

#include <gtest/gtest.h>

#include <random>

#include "base/testing/folder_test.h"

namespace athanor::expert_watch_test {
namespace {

constexpr int64_t kExperts = 16, kChosen = 2, kTokens = 512;

ModelConfig model() {
  ModelConfig model;
  model.num_hidden_layers = 3;
  model.num_experts = kExperts;
  model.num_experts_per_tok = kChosen;
  return model;
}

// Counts of a step: each choice goes to an expert that is drawn, by the shares.
RouterCounts step_of(std::mt19937& draw, std::vector<std::vector<double>> shares, int64_t tokens = kTokens) {
  RouterCounts counts;
  counts.taken = at::zeros({std::ssize(shares), kExperts}, at::kLong);
  for (int64_t layer = 0; layer < std::ssize(shares); ++layer) {
    auto& share = shares[static_cast<size_t>(layer)];
    std::discrete_distribution<int64_t> expert(share.begin(), share.end());
    auto* row = counts.taken[layer].data_ptr<int64_t>();
    for (int64_t choice = 0; choice < tokens * kChosen; ++choice) ++row[expert(draw)];
  }
  return counts;
}

const std::vector<double> kEven(kExperts, 1.0);

// Returns what is told of steps with the same shares, by line.
std::vector<std::string> told(ExpertWatch& watch, std::mt19937& draw, const std::vector<std::vector<double>>& shares,
                              int64_t& step, int64_t steps, int64_t tokens = kTokens) {
  std::vector<std::string> lines;
  for (int64_t i = 0; i < steps; ++i) {
    const std::string line = watch.took(++step, step_of(draw, shares, tokens));
    if (!line.empty()) lines.push_back(line);
  }
  return lines;
}

TEST(ExpertWatch, ExpertsThatTakeTheirShareAreNotNamed) {
  const ModelConfig config = model();
  ExpertWatch watch(config);
  std::mt19937 draw(1);
  int64_t step = 0;
  std::vector<double> uneven = kEven;
  uneven[3] = 0.05, uneven[7] = 3;  // within bounds
  EXPECT_TRUE(told(watch, draw, {kEven, uneven, kEven}, step, 300).empty());
  EXPECT_TRUE(watch.took(1, {}).empty()) << "a dense model";
}

TEST(ExpertWatch, DeadAndOverloadedOnesAreNamedOnceAndWhenTheyRecover) {
  const ModelConfig config = model();
  ExpertWatch watch(config);
  std::mt19937 draw(2);
  int64_t step = 0;
  std::vector<double> bad = kEven;
  bad[5] = 0, bad[9] = 8;
  const auto lines = told(watch, draw, {kEven, bad, kEven}, step, 300);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_SAYS(lines[0],
              "steps 1 to 100: dead experts (less than 1% of the mean of their layer): 5 of model.layers.1; ");
  EXPECT_SAYS(lines[0], "overloaded experts (more than 4.0 times the mean of their layer): 9 of model.layers.1");
  const auto after = told(watch, draw, {kEven, kEven, kEven}, step, 200);
  ASSERT_EQ(after.size(), 1u);
  EXPECT_SAYS(after[0], "steps 301 to 400: no expert is dead or overloaded any more");
}

TEST(ExpertWatch, FewTokensMakeTheWindowLongerInsteadOfAnExpertDead) {
  const ModelConfig config = model();
  ExpertWatch watch(config);
  std::mt19937 draw(3);
  int64_t step = 0;
  std::vector<double> bad = kEven;
  bad[0] = 0;
  const auto lines = told(watch, draw, {kEven, kEven, bad}, step, 450, /*tokens=*/2);
  ASSERT_EQ(lines.size(), 1u);  // 4 choices of 16 experts: 100 for each after 400 steps
  EXPECT_SAYS(lines[0], "steps 1 to 400: dead experts");
  EXPECT_SAYS(lines[0], ": 0 of model.layers.2");
}

}  // namespace
}  // namespace athanor::expert_watch_test
