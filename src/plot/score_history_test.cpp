// Progressions of scores: what becomes a column, what a point, and how both are drawn.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "plot/curve.h"
#include "plot/score_figures.h"

namespace athanor::score_history_test {
namespace {

using Json = nlohmann::ordered_json;

Json scores(double acc, double error) { return {{"acc,none", acc}, {"acc_stderr,none", error}, {"sample_len", 50}}; }

Json results_at(int64_t step, const Json& tasks) {
  return {{"results", tasks},
          {"date", static_cast<double>(step)},
          {"athanor", {{"step", step}, {"tokens", step * 1000}, {"chance", {{"a", 0.25}, {"b", 0.5}}}}}};
}

ScoreHistory history_of(const std::vector<Json>& results, const HistoryRequest& request = {}) {
  return make_score_history({{"run", results}}, request);
}

std::vector<std::string> names_of(const ScoreHistory& history) {
  std::vector<std::string> names;
  for (const auto& column : history.columns) names.push_back(column.task + " " + column.metric);
  return names;
}

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + part.size())) ++found;
  return found;
}

using Names = std::vector<std::string>;

TEST(ScoreHistory, TakesAccNormWhereATaskHasItAndElseAcc) {
  Json a = scores(0.3, 0.01);
  a["acc_norm,none"] = 0.4;
  a["acc_norm_stderr,none"] = "N/A";
  const auto results = results_at(
      1,
      {{"a", a}, {"b", scores(0.6, 0.02)}, {"text", {{"word_perplexity,none", 900.0}, {"bits_per_byte,none", 1.5}}}});
  const auto history = history_of({results});
  EXPECT_EQ(names_of(history), (Names{"a acc_norm", "b acc", "text bits_per_byte", "average accuracy"}));
  const auto& row = history.runs[0].checkpoints[0].scores;
  EXPECT_EQ(row[0]->value, 0.4);
  EXPECT_FALSE(row[0]->error);
  EXPECT_EQ(history.columns[0].chance, 0.25);
  EXPECT_FALSE(history.columns[2].chance);
  EXPECT_EQ(names_of(history_of({results}, {.metric = "acc", .tasks = {}, .chance = {}})),
            (Names{"a acc", "b acc", "average accuracy"}));
}

TEST(ScoreHistory, AGroupThatCombinesStandsForItsTasksAndOneThatDoesNotHasNoColumn) {
  Json results = results_at(1, {{"x_1", scores(0.2, 0.1)},
                                {"x_2", scores(0.3, 0.1)},
                                {"c", scores(0.5, 0.1)},
                                {"x", scores(0.25, 0.07)},
                                {"all", {{"alias", "all"}}}});
  results["group_subtasks"] = {{"all", {"x", "c"}}, {"x", {"x_1", "x_2"}}};
  results["n-shot"] = {{"x_1", 5}, {"x_2", 5}, {"c", 0}};
  const auto history = history_of({results});
  EXPECT_EQ(names_of(history), (Names{"c acc", "x acc", "average accuracy"}));
  EXPECT_EQ(history.columns[1].num_fewshot, 5) << "that of its tasks";
  EXPECT_EQ(names_of(history_of({results}, {.metric = "", .tasks = {"x_2"}, .chance = {}})), (Names{"x_2 acc"}));
}

TEST(ScoreHistory, TheMeanIsOfCheckpointsWithAllAccuraciesAndItsErrorsAreIndependent) {
  const auto history = history_of(
      {results_at(2, {{"a", scores(0.3, 0.03)}}), results_at(1, {{"a", scores(0.2, 0.03)}, {"b", scores(0.6, 0.04)}})});
  const auto& checkpoints = history.runs[0].checkpoints;
  ASSERT_EQ(checkpoints.size(), 2u);
  EXPECT_EQ(checkpoints[0].step, 1) << "in the order of steps";
  EXPECT_DOUBLE_EQ(checkpoints[0].scores[2]->value, 0.4);
  EXPECT_DOUBLE_EQ(*checkpoints[0].scores[2]->error, 0.025) << "√(0.03² + 0.04²) / 2";
  EXPECT_FALSE(checkpoints[1].scores[2]);
  EXPECT_EQ(history.columns[2].chance, 0.375);
}

TEST(ScoreHistory, AColumnHasResultsOfOneKindAndTheLaterOfTwo) {
  Json few = results_at(3, {{"a", scores(0.9, 0.1)}}), again = results_at(2, {{"a", scores(0.35, 0.01)}});
  few["results"]["a"]["sample_len"] = 10;
  again["date"] = 99;
  const auto history =
      history_of({again, few, results_at(1, {{"a", scores(0.2, 0.1)}}), results_at(2, {{"a", scores(0.3, 0.1)}})});
  const auto& checkpoints = history.runs[0].checkpoints;
  ASSERT_EQ(checkpoints.size(), 2u) << "10 documents are another kind than 50";
  EXPECT_EQ(checkpoints[1].scores[0]->value, 0.35);
}

TEST(ScoreHistory, WhatDoesNotFitIsLeftOutAndNothingElseIsLost) {
  Json odd = results_at(1, {{"a", scores(0.2, 0.1)}, {"list", {1, 2}}, {"text", "none"}, {"null", nullptr}});
  odd["results"]["b"] = {{"acc,none", "0.5"}, {"acc", 0.5}, {"alias", 3}};
  odd["groups"] = {1};
  odd["group_subtasks"] = {{"a", "b"}, {"g", {1, nullptr, "g"}}};
  odd["n-shot"] = "many";
  odd["date"] = "yesterday";
  odd["athanor"]["tokens"] = "unknown";
  const Json none = {{"results", {{"a", scores(0.2, 0.1)}}}, {"athanor", 5}};
  const auto history = history_of({odd, none});
  EXPECT_EQ(names_of(history), (Names{"a acc"}));
  EXPECT_FALSE(history.has_tokens());
  EXPECT_THROW(history_of({none}), ConfigError);
  EXPECT_THROW(history_of({odd}, {.metric = "acc_norm", .tasks = {}, .chance = {}}), ConfigError);
  EXPECT_THROW(history_of({odd}, {.metric = "", .tasks = {"c"}, .chance = {}}), ConfigError);
}

std::vector<Json> rising(int64_t num_checkpoints, const std::string& task) {
  std::vector<Json> results;
  for (int64_t i = 1; i <= num_checkpoints; ++i)
    results.push_back(results_at(i, {{task, scores(0.2 + 0.5 * static_cast<double>(i) / 1000, 0.02)}}));
  return results;
}

TEST(ScoreFigures, HaveAPanelForEachTaskALineForEachRunAndALegendForSeveral) {
  auto both = rising(5, "a");
  for (auto& results : both) results["results"]["b"] = scores(0.5, 0.01);
  const auto history = make_score_history({{"one<run", rising(5, "a")}, {"two", both}}, {});
  const auto svg = draw_scores(history, ScoreAxis::kTokensIfKnown);
  EXPECT_EQ(count(svg, "class=\"line\""), 4u) << "a: both, b and the mean: the second";
  EXPECT_EQ(count(svg, "class=\"band\""), 4u);
  EXPECT_EQ(count(svg, "<circle"), 20u);
  EXPECT_EQ(count(svg, "class=\"level\""), 3u);
  EXPECT_NE(svg.find("chance 0.25"), svg.npos);
  EXPECT_NE(svg.find("one&lt;run"), svg.npos);
  EXPECT_NE(svg.find(">tokens<"), svg.npos);
  EXPECT_NE(draw_scores(history, ScoreAxis::kSteps).find(">step<"), svg.npos);
  // The second run has its colour also where the first has no curve.
  EXPECT_EQ(count(svg, "class=\"line\" stroke=\"#2f7fd6\""), 1u);
  EXPECT_EQ(count(svg, "class=\"line\" stroke=\"#e0701f\""), 3u);
}

TEST(ScoreFigures, OneCheckpointIsAPointWithABarAndAThousandAreALineWithoutDots) {
  const auto one = draw_scores(history_of(rising(1, "a")), ScoreAxis::kTokensIfKnown);
  EXPECT_EQ(count(one, "<circle"), 1u);
  EXPECT_EQ(count(one, "class=\"bar\""), 1u);
  EXPECT_EQ(one.find("nan"), one.npos);
  const auto many = draw_scores(history_of(rising(1000, "a")), ScoreAxis::kTokensIfKnown);
  EXPECT_EQ(count(many, "<circle"), 0u);
  EXPECT_EQ(count(many, "class=\"line\""), 1u);
  // At most four points of the line and eight of the band in each column, of 13 characters.
  EXPECT_LT(many.size(), 12u * (kMostColumns + 1) * 13 + 4000);
}

TEST(ScoreFigures, StepsAreTheAxisWhereTokensAreNotKnown) {
  auto results = rising(2, "a");
  results[0]["athanor"].erase("tokens");
  const auto history = history_of(results);
  EXPECT_NE(draw_scores(history, ScoreAxis::kTokensIfKnown).find(">step<"), std::string::npos);
  EXPECT_THROW(draw_scores(history, ScoreAxis::kTokens), ConfigError);
}

TEST(ScoreTable, HasARowForEachCheckpointAndContinuesBelowWhereATerminalIsNarrow) {
  auto results = rising(3, "a");
  for (auto& each : results) each["results"]["b"] = scores(0.5, 0.0123);
  const auto history = history_of(results);
  EXPECT_EQ(score_table(history, 0),
            "step        tokens       a       b   average\n"
            "            metric     acc     acc  accuracy\n"
            "            chance  0.2500  0.5000    0.3750\n"
            "      stderr up to  0.0200  0.0123    0.0117\n"
            "   1         1,000  0.2005  0.5000    0.3503\n"
            "   2         2,000  0.2010  0.5000    0.3505\n"
            "   3         3,000  0.2015  0.5000    0.3508\n");
  const auto narrow = score_table(history, 36);
  EXPECT_EQ(count(narrow, "stderr up to"), 2u);
  EXPECT_EQ(count(narrow, "average"), 1u);
  const auto two = score_table(make_score_history({{"one", results}, {"two", results}}, {}), 0);
  EXPECT_TRUE(two.starts_with("one\nstep")) << two;
  EXPECT_NE(two.find("\n\ntwo\nstep"), two.npos);
}

}  // namespace
}  // namespace athanor::score_history_test
