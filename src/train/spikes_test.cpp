#include "train/spikes.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "base/error.h"
#include "base/testing/folder_test.h"

namespace athanor::spikes_test {
namespace {

// Losses and norms as training has them: noise around a slow descent.
class Noise {
 public:
  explicit Noise(uint32_t seed) : draw_(seed) {}
  double loss(double level = 3) { return level + 0.05 * normal_(draw_); }
  double norm(double level = 1) { return level * (1 + 0.2 * normal_(draw_)); }

 private:
  std::mt19937 draw_;
  std::normal_distribution<double> normal_;
};

Spikes after(int64_t steps, Noise& noise) {
  Spikes spikes;
  for (int64_t step = 1; step <= steps; ++step)
    spikes.take(step, noise.loss(3 - 0.001 * static_cast<double>(step)), noise.norm());
  return spikes;
}

constexpr auto kLeastSteps = static_cast<int64_t>(UsualLevel::kLeast);

TEST(Spikes, NothingIsOneBeforeThereIsAHistory) {
  Noise noise(1);
  Spikes spikes = after(kLeastSteps - 1, noise);
  EXPECT_TRUE(std::isinf(spikes.limits().loss));
  EXPECT_EQ(spikes.take(kLeastSteps, 100, 100).spike, "");
}

TEST(Spikes, NoiseIsNotOneAndAStepOfADivergingRunIs) {
  Noise noise(2);
  Spikes spikes = after(200, noise);
  for (int64_t step = 201; step <= 2200; ++step) {
    const SpikeFindings found = spikes.take(step, noise.loss(2.8), noise.norm());
    ASSERT_EQ(found.spike, "") << step;
    ASSERT_TRUE(found.rises.empty()) << step;
  }
  const auto spike_of = [&](double loss, double norm) { return Spikes(spikes).take(2201, loss, norm).spike; };
  EXPECT_SAYS(spike_of(4, 1), "the loss is 4, above");
  EXPECT_SAYS(spike_of(2.8, 12), "the gradient norm is 12, above");
  EXPECT_SAYS(spike_of(4, 12), "; the gradient norm is 12");
}

// A phase with harder data: nothing falls again.
TEST(Spikes, ALossThatStaysHighIsTheUsualOneAfterFourSteps) {
  Noise noise(3);
  Spikes spikes = after(300, noise);
  std::vector<int64_t> found;
  std::vector<LevelRise> rises;
  for (int64_t step = 301; step <= 450; ++step) {
    const SpikeFindings at = spikes.take(step, noise.loss(3.6), noise.norm());
    if (!at.spike.empty()) found.push_back(step);
    rises.insert(rises.end(), at.rises.begin(), at.rises.end());
  }
  EXPECT_EQ(found, (std::vector<int64_t>{301, 302, 303, 304}));
  ASSERT_EQ(rises.size(), 1u);
  EXPECT_NEAR(rises[0].before, 2.75, 0.05);
  EXPECT_NEAR(rises[0].now, 3.6, 0.1);
  EXPECT_SAYS(rises[0].text(), "the loss stays high: 5 steps in a row");
  EXPECT_SAYS(rises[0].text(), "% above the last level (2.7");
  EXPECT_LT(spikes.limits().loss, 4.2);
}

TEST(Spikes, AGradientNormThatStaysHighIsTheUsualOneWhileTheLossStaysWhereItIs) {
  Noise noise(4);
  Spikes spikes = after(300, noise);
  size_t found = 0, rises = 0;
  for (int64_t step = 301; step <= 450; ++step) {
    const SpikeFindings at = spikes.take(step, noise.loss(2.7), noise.norm(8));
    found += at.spike.empty() ? 0 : 1;
    rises += at.rises.size();
  }
  EXPECT_EQ(found, 4u);
  EXPECT_EQ(rises, 1u);
  EXPECT_SAYS(spikes.take(451, 4, 8).spike, "the loss is 4");
}

// Even where both take turns, so that neither has a row.
TEST(Spikes, WhatIsBeyondInOneNumberDoesNotKeepTheOtherFromBeingLearnt) {
  Noise noise(5);
  Spikes spikes = after(300, noise);
  size_t found = 0;
  for (int64_t step = 301; step <= 500; ++step)
    found += spikes.take(step, noise.loss(step % 2 == 0 ? 2.7 : 3.9), noise.norm(step % 2 == 0 ? 9 : 1)).spike.empty()
                 ? 0
                 : 1;
  EXPECT_EQ(found, 200u) << "each of them is one";
  EXPECT_SAYS(spikes.take(501, 4, 8).spike, "the median of the last 128 steps is 2.7");
}

TEST(Spikes, ARealOneOfUpToFourBatchesIsFoundAndLeavesNothing) {
  for (const int64_t length : {1, 3, 4}) {
    Noise noise(6);
    Spikes spikes = after(300, noise);
    Spikes without = spikes;
    for (int64_t i = 0; i < length; ++i) EXPECT_NE(spikes.take(301, 3.5 + 0.4 * double(i % 2), 1).spike, "") << i;
    for (int64_t step = 301; step <= 310; ++step) {
      const double loss = noise.loss(2.7), norm = noise.norm();
      EXPECT_EQ(spikes.take(step, loss, norm).spike, "") << length;
      without.take(step, loss, norm);
    }
    EXPECT_EQ(spikes.to_json().at("loss"), without.to_json().at("loss")) << length;
  }
}

TEST(Spikes, ARealOneIsFoundRightAfterTheLevelHasRisenAndLongAfter) {
  for (const int64_t later : {1, 5, 31, 33, 100, 300}) {
    Noise noise(7);
    Spikes spikes = after(300, noise);
    int64_t step = 301;
    for (; step <= 304 + later; ++step) spikes.take(step, noise.loss(3.6), noise.norm());
    for (int i = 0; i < 3; ++i) EXPECT_NE(spikes.take(step, 5, 1).spike, "") << later;
    EXPECT_EQ(spikes.take(step, noise.loss(3.6), 1).spike, "") << later;
  }
}

// Seven bad batches, or an update after which the loss needs some time.
TEST(Spikes, NothingRemainsOfARiseThatEndsAgain) {
  for (const int64_t length : {7, 40, 120}) {
    Noise noise(8);
    Spikes spikes = after(300, noise);
    int64_t step = 301;
    for (; step <= 300 + length; ++step) spikes.take(step, noise.loss(step % 2 == 0 ? 6 : 5), noise.norm());
    for (const int64_t end = step + 5; step < end; ++step) spikes.take(step, noise.loss(2.7), noise.norm());
    EXPECT_LT(spikes.limits().loss, 3.6) << length;
    EXPECT_NE(spikes.take(step, 5, 1).spike, "") << length;
  }
}

TEST(Spikes, AnOutlierAmongTheFirstStepsOfANewLevelDoesNotMoveIt) {
  Noise noise(9);
  Spikes spikes = after(300, noise);
  for (const double loss : {3.6, 40.0, 50.0, 3.62, 3.58}) spikes.take(301, loss, 1);
  EXPECT_LT(spikes.limits().loss, 4.4);
}

TEST(Spikes, ValuesThatGrowFasterAndFasterAreNeverALevel) {
  Noise noise(10);
  Spikes spikes = after(300, noise);
  double loss = 3.5;
  for (int64_t step = 301; step <= 330; ++step, loss *= 1.3) EXPECT_NE(spikes.take(step, loss, 1).spike, "") << loss;
}

TEST(Spikes, ASlowDivergenceIsToldAgainAndAgainWithItsDistanceFromTheLowestLevel) {
  for (const double growth : {1.0005, 1.002, 1.01, 1.02}) {
    Noise noise(11);
    Spikes spikes = after(300, noise);
    double level = 2.7;
    std::vector<LevelRise> rises;
    for (int64_t step = 301; level < 2.7 * 2; ++step, level *= growth)
      for (const LevelRise& rise : spikes.take(step, noise.loss(level), noise.norm()).rises) rises.push_back(rise);
    ASSERT_GE(rises.size(), 2u) << growth;
    EXPECT_LT(rises[0].now, 1.25 * 2.7) << growth;
    for (const LevelRise& rise : rises) EXPECT_NEAR(rise.lowest, 2.72, 0.05) << growth;
    EXPECT_GT(rises.back().now / rises.back().lowest, rises[0].now / rises[0].lowest) << growth;
  }
}

// What a row of batches at one step is with skip_step, and a row of attempts at it with roll_back.
TEST(Spikes, ALossThatRisesAtTheSameStepAfterEachRollBackIsALevelAsWell) {
  Noise noise(12);
  const Spikes saved = after(270, noise);
  Spikes spikes = saved;
  int spikes_found = 0;
  for (int times = 0; times < 10; ++times) {
    for (int64_t step = 271; step <= 300; ++step) spikes.take(step, noise.loss(2.7), noise.norm());
    if (spikes.take(301, noise.loss(3.6), 1).spike.empty()) break;
    ++spikes_found;
    spikes.roll_back_before(301);
    Spikes again = saved;
    again.continue_after(spikes);
    spikes = again;
  }
  EXPECT_EQ(spikes_found, 4);
  EXPECT_EQ(spikes.take(302, noise.loss(3.6), 1).spike, "");
}

// Losses with a spike, a rise that lasts, and a slow one, of which some steps are not applied.
TEST(Spikes, ARunThatIsInterruptedAtAnyStepJudgesAsOneThatIsNot) {
  Noise noise(13);
  Spikes spikes;
  size_t found = 0;
  for (int64_t step = 1; step <= 500; ++step) {
    const double rise = step > 400 ? 0.01 * double(step - 400) : step > 200 ? 0.6 : 0;
    const double loss = noise.loss(3 + rise + (step == 150 || step == 260 ? 5 : 0)), norm = noise.norm();
    Spikes resumed = Spikes::from_json(nlohmann::json::parse(spikes.to_json().dump()), "here");
    EXPECT_EQ(resumed.limits().loss, spikes.limits().loss) << step;
    EXPECT_EQ(resumed.take(step, loss, norm).spike, spikes.take(step, loss, norm).spike) << step;
    EXPECT_EQ(resumed.to_json(), spikes.to_json()) << step;
    found += spikes.limits().loss < loss ? 1 : 0;
  }
  EXPECT_GT(found, 0u);
}

TEST(Spikes, ARecordThatNoRunWritesIsRefused) {
  Noise noise(14);
  const nlohmann::json right = after(40, noise).to_json();
  const auto refusal = [&](const char* at, nlohmann::json value) {
    nlohmann::json wrong = right;
    wrong[nlohmann::json::json_pointer(at)] = std::move(value);
    return message_of<CheckpointError>([&] { Spikes::from_json(wrong, "step-00000040"); });
  };
  EXPECT_NO_THROW(Spikes::from_json(right, ""));
  for (const auto& [at, value] :
       std::vector<std::pair<const char*, nlohmann::json>>{{"/loss", 3},
                                                           {"/loss/recent/3", "high"},
                                                           {"/loss/recent", std::vector<double>(129, 1.0)},
                                                           {"/loss/borrows", 1},
                                                           {"/grad_norm/beyond", std::vector<double>(5, 1.0)},
                                                           {"/grad_norm/told", {1}},
                                                           {"/grad_norm/lowest", -1},
                                                           {"/grad_norm/returned", {1}},
                                                           {"/grad_norm/lowest_step", 1.5},
                                                           {"/repeated_until", nullptr}})
    EXPECT_SAYS(refusal(at, value), "step-00000040: its record of losses and gradient norms") << at;
}

TEST(Spikes, ACheckpointWithoutARecordIsJudgedByTheMetricsOfItsPhase) {
  Noise noise(3);
  Spikes spikes;
  std::string lines = "{\"step\": 0, \"loss\": nu";  // torn
  lines += "\n";
  for (int step = 1; step <= 300; ++step) {
    const double loss = noise.loss(step <= 100 ? 9 : 3) + (step == 250 ? 5 : 0), norm = noise.norm();
    if (step > 100) spikes.take(step, loss, norm);
    lines += fmt::format("{{\"step\": {}, \"loss\": {}, \"grad_norm\": {}}}\n", step, loss, norm);
  }
  lines += "{\"step\": 301, \"loss\": 9, \"grad_norm\": 9}\n";  // a step that is done again
  Spikes again = spikes_of_history(lines, 100, 300);
  EXPECT_EQ(again.to_json(), spikes.to_json());
  EXPECT_SAYS(again.take(301, 8, 1).spike, "the loss is 8");
}

}  // namespace
}  // namespace athanor::spikes_test
