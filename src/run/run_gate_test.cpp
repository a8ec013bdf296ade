// Which earlier evaluations the rules of a run compare with.

#include "run/run_gate.h"

#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "base/testing/folder_test.h"
#include "record/run_history.h"

namespace athanor::run_gate_test {
namespace {

class EarlierScores : public FolderTest {
 protected:
  void SetUp() override {
    FolderTest::SetUp();
    log_ = std::make_unique<EventLog>(folder_ / "events.jsonl", 1);
  }
  void evaluated(int64_t step, double value, double limit = 0) {
    EvalConfig config;
    config.limit = limit;
    log_->add(
        "evaluation", step,
        {{"settings", evaluation_settings(config)}, {"results", scores_to_json({{"x", {{"acc", {value, 0.1}}}}})}});
  }
  std::vector<double> values(int64_t step = 1000) {
    std::vector<double> values;
    for (const auto& scores : read_earlier_scores(folder_ / "events.jsonl", {}, step))
      values.push_back(scores.at("x").at("acc").value);
    return values;
  }
  std::unique_ptr<EventLog> log_;
};

using Values = std::vector<double>;

TEST_F(EarlierScores, AreThoseOfAllAttemptsInTheirOrder) {
  EXPECT_EQ(values(), Values{});
  log_->add("start", 0);
  evaluated(10, 0.1);
  evaluated(20, 0.2);
  log_->add("resume", 25);
  evaluated(30, 0.3);
  EXPECT_EQ(values(), (Values{0.1, 0.2, 0.3}));
  EXPECT_EQ(values(20), (Values{0.1, 0.2}));
}

TEST_F(EarlierScores, OfStepsThatAreDoneAgainOrWereLeftAreForgotten) {
  evaluated(10, 0.1);
  evaluated(20, 0.2);
  log_->add("went_back", 15);
  EXPECT_EQ(values(), Values{0.1});
  evaluated(20, 0.25);
  log_->add("resume", 10);
  evaluated(20, 0.26);
  evaluated(30, 0.3);
  EXPECT_EQ(values(), (Values{0.1, 0.26, 0.3}));
  log_->add("start", 0);
  EXPECT_EQ(values(), Values{});
}

TEST_F(EarlierScores, AStepIsEvaluatedOnlyIfItsResultIsThatOfItsLastTime) {
  const auto is_done = [&](int64_t step) { return was_evaluated(folder_ / "events.jsonl", step); };
  EXPECT_FALSE(is_done(10));
  evaluated(10, 0.1);
  evaluated(20, 0.2, /*limit=*/50);
  log_->add("resume", 20);
  EXPECT_TRUE(is_done(10) && is_done(20));
  EXPECT_FALSE(is_done(15));
  log_->add("went_back", 15);
  EXPECT_TRUE(is_done(10));
  EXPECT_FALSE(is_done(20)) << "it is done again";
}

TEST_F(EarlierScores, AStepWhoseRuleDidNotStopTheRunYetIsEvaluatedAgain) {
  evaluated(10, 0.1);
  log_->add("rule", 10, {{"rule", "x.acc < 0.2"}, {"action", "warn"}});
  EXPECT_TRUE(was_evaluated(folder_ / "events.jsonl", 10));
  log_->add("rule", 10, {{"rule", "x.acc < 0.5"}, {"action", "stop"}});
  EXPECT_FALSE(was_evaluated(folder_ / "events.jsonl", 10)) << "the process ended before it stopped";
  log_->add("stop", 10, {{"rule", "x.acc < 0.5"}});
  EXPECT_TRUE(was_evaluated(folder_ / "events.jsonl", 10));
}

TEST_F(EarlierScores, OfOtherDocumentsDoNotCount) {
  evaluated(10, 0.1, 50);
  evaluated(20, 0.2);
  EXPECT_EQ(values(), Values{0.2});
}

TEST_F(EarlierScores, LinesThatCannotBeReadAreIgnored) {
  evaluated(10, 0.1);
  write("events.jsonl",
        read_file(folder_ / "events.jsonl") +
            "{\"event\": \"evaluation\", \"step\": 20}\n{\"event\": 7, \"step\": 1}\n[]\n{\"event\": \"ev");
  EXPECT_EQ(values(), Values{0.1});
}

TEST(EvaluationScoresAsJson, AreReadAsTheyWereWritten) {
  const EvaluationScores scores = {{"x", {{"acc", {0.1, 0.01}}, {"perplexity", {17.5, std::nullopt}}}}};
  EXPECT_EQ(scores_from_json(nlohmann::json::parse(scores_to_json(scores).dump())), scores);
}

}  // namespace
}  // namespace athanor::run_gate_test
