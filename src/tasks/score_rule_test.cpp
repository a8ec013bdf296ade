// Rules on scores: what is read, what is refused at which place, and when a rule holds.

#include "tasks/score_rule.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "base/testing/folder_test.h"

namespace athanor::tasks::score_rule_test {
namespace {

using Term = ScoreRule::Term;
using Comparison = ScoreRule::Comparison;
using After = ScoreRule::After;

std::vector<RuleSubject> subjects() {
  return {{"arc_easy", {{"acc", true, true}, {"acc_norm", true, true}, {"brier_score", false, false}}, 0.25},
          {"texts", {{"word_perplexity", false, false}, {"bits_per_byte", false, false}}, std::nullopt},
          {"my.task-2", {{"acc", true, true}}, std::nullopt},
          {"mmlu", {{"acc", true, true}}, 0.25},
          {"bare", {}, std::nullopt}};
}

ScoreRule parsed(const std::string& text) { return parse_score_rule(text, subjects(), "eval.stop_if[0]"); }
std::string refused(const std::string& text) {
  return refusal<ConfigError>([&] { parsed(text); });
}

TEST(ScoreRules, NameATaskOrGroupAndAMetricOrMeanTheFirst) {
  EXPECT_EQ(parsed("arc_easy < 0.3").metric.name, "acc");
  EXPECT_EQ(parsed("  arc_easy.acc_norm<0.3").metric.name, "acc_norm");
  EXPECT_EQ(parsed("mmlu < chance").task, "mmlu");
  EXPECT_EQ(parsed("my.task-2 < 1").task, "my.task-2");
  EXPECT_EQ(parsed("my.task-2.acc < 1").metric.name, "acc");
  EXPECT_FALSE(parsed("texts > 9").metric.higher_is_better);
}

TEST(ScoreRules, HaveASumOfTermsAndABeginning) {
  const ScoreRule rule = parsed("arc_easy <= -0.5 + chance - 2 stderr+0.9 best -previous after 5e9 tokens");
  EXPECT_EQ(rule.comparison, Comparison::kLessOrEqual);
  const std::vector<std::pair<double, Term>> expected = {
      {-0.5, Term::kNumber}, {1, Term::kChance}, {-2, Term::kStandardError}, {0.9, Term::kBest}, {-1, Term::kPrevious}};
  ASSERT_EQ(rule.limit.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(rule.limit[i].factor, expected[i].first) << i;
    EXPECT_EQ(rule.limit[i].term, expected[i].second) << i;
  }
  EXPECT_EQ(rule.after, After::kTokens);
  EXPECT_EQ(rule.begin, 5e9);
  EXPECT_EQ(parsed("arc_easy > 1 after 30 steps").after, After::kSteps);
  EXPECT_EQ(parsed("arc_easy >= 1").comparison, Comparison::kGreaterOrEqual);
}

TEST(ScoreRules, AreRefusedAtTheCharacterWithTheNearestName) {
  EXPECT_EQ(
      refused("arc_esy < 0.3"),
      "eval.stop_if[0], character 1: eval.tasks has no \"arc_esy\" (did you mean \"arc_easy\"?): \"arc_esy < 0.3\"");
  EXPECT_EQ(
      refused("arc_easy.acc_nrm < 0.3"),
      "eval.stop_if[0], character 10: arc_easy has no metric \"acc_nrm\" (did you mean \"acc_norm\"?); it has acc, "
      "acc_norm, brier_score: \"arc_easy.acc_nrm < 0.3\"");
  EXPECT_EQ(
      refused("arc_easy < chanse + 1"),
      "eval.stop_if[0], character 12: \"chanse\" is no term; a number, chance, best, previous and stderr are (did "
      "you mean \"chance\"?): \"arc_easy < chanse + 1\"");
  EXPECT_EQ(refused("arc_easy < 0.3 after 5 token"),
            "eval.stop_if[0], character 24: \"after\" a number of tokens or steps, not of \"token\" (did you mean "
            "\"tokens\"?): \"arc_easy < 0.3 after 5 token\"");
}

TEST(ScoreRules, AreRefusedWhereAPartIsMissingOrTooMuch) {
  const auto at = [](const std::string& text) {
    const std::string message = refused(text);
    EXPECT_EQ(message.find('\n'), std::string::npos);
    return std::stoi(message.substr(std::string("eval.stop_if[0], character ").size()));
  };
  EXPECT_EQ(at(""), 1);
  EXPECT_EQ(at("arc_easy = 1"), 1);
  EXPECT_EQ(at("< 1"), 1);
  EXPECT_EQ(at("arc_easy <"), 11);
  EXPECT_EQ(at("arc_easy < 1 +"), 15);
  EXPECT_EQ(at("arc_easy < 1 2"), 14);
  EXPECT_EQ(at("arc_easy < 1 < 2"), 14);
  EXPECT_EQ(at("arc_easy < 1 aftr 2 steps"), 14);
  EXPECT_EQ(at("arc_easy < 1 after steps"), 20);
  EXPECT_EQ(at("arc_easy < 1 after 2"), 21);
  EXPECT_EQ(at("arc_easy < 1 after 2 steps or 3"), 28);
  EXPECT_EQ(at("arc_easy < 1e999"), 12);
  EXPECT_EQ(at("bare < 1"), 1);
}

TEST(ScoreRules, WithAChanceOrAnErrorThatIsNotKnownAreRefused) {
  EXPECT_NE(refused("texts > chance").find("the chance of texts word_perplexity is not known"), std::string::npos);
  EXPECT_NE(refused("arc_easy.brier_score > chance").find("is not known"), std::string::npos);
  EXPECT_NE(refused("texts > 9 + 2 stderr").find("has no standard error"), std::string::npos);
  EXPECT_EQ(parsed("arc_easy.acc_norm > chance").chance, 0.25);
}

TEST(ScoreRules, HoldByTheirComparison) {
  const auto holds = [](const std::string& text, double value) { return decide(parsed(text), {.value = value}).holds; };
  for (const double value : {0.2, 0.3, 0.4}) {
    EXPECT_EQ(holds("arc_easy < 0.3", value), value < 0.3);
    EXPECT_EQ(holds("arc_easy <= 0.3", value), value <= 0.3);
    EXPECT_EQ(holds("arc_easy > 0.3", value), value > 0.3);
    EXPECT_EQ(holds("arc_easy >= 0.3", value), value >= 0.3);
  }
}

TEST(ScoreRules, TellTheirNumbers) {
  const auto decision =
      decide(parsed("arc_easy < chance + 2 stderr"), {.value = 0.2417, .standard_error = 0.0125, .earlier = {}});
  EXPECT_TRUE(decision.holds);
  EXPECT_DOUBLE_EQ(decision.limit, 0.275);
  EXPECT_EQ(decision.text, "arc_easy acc is 0.2417, less than 0.275 (chance 0.25 + 2 stderr 0.0125)");
  EXPECT_EQ(decide(parsed("arc_easy > 0.5"), {.value = 0.25}).text, "arc_easy acc is 0.25, not greater than 0.5");
}

TEST(ScoreRules, BestFollowsTheDirectionOfTheMetric) {
  EXPECT_EQ(decide(parsed("arc_easy < best - 0.05"), {.value = 0.3, .earlier = {0.2, 0.4, 0.35}}).limit, 0.4 - 0.05);
  EXPECT_EQ(decide(parsed("texts > best"), {.value = 30, .earlier = {20, 40, 25}}).limit, 20);
  EXPECT_EQ(decide(parsed("texts > previous"), {.value = 30, .earlier = {20, 40, 25}}).limit, 25);
}

TEST(ScoreRules, DoNotHoldBeforeTheirBeginning) {
  const ScoreRule tokens = parsed("arc_easy < 1 after 100 tokens"), steps = parsed("arc_easy < 1 after 10 steps");
  EXPECT_FALSE(decide(tokens, {.value = 0, .step = 1000, .tokens = 99}).holds);
  EXPECT_TRUE(decide(tokens, {.value = 0, .step = 1, .tokens = 100}).holds);
  EXPECT_FALSE(decide(steps, {.value = 0, .step = 9, .tokens = 1000}).holds);
  EXPECT_TRUE(decide(steps, {.value = 0, .step = 10, .tokens = 1}).holds);
}

TEST(ScoreRules, DoNotHoldIfAPartIsNotDefined) {
  EXPECT_FALSE(decide(parsed("arc_easy < best + 1"), {.value = 0}).holds);
  EXPECT_FALSE(decide(parsed("arc_easy < previous + 1"), {.value = 0}).holds);
  EXPECT_FALSE(decide(parsed("arc_easy < 1 + stderr"), {.value = 0}).holds);
  EXPECT_FALSE(decide(parsed("arc_easy < 1"), {.value = NAN}).holds);
}

}  // namespace
}  // namespace athanor::tasks::score_rule_test
