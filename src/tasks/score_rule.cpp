#include "tasks/score_rule.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "tasks/task_config.h"

namespace athanor::tasks {
namespace {

using Term = ScoreRule::Term;
using Comparison = ScoreRule::Comparison;

// The members of a group that has a standard error all have one.
RuleSubject::Metric metric_of_group(const TaskSet& tasks, const TaskGroup& group, const std::string& name) {
  RuleSubject::Metric combined{name, true, true};
  for (const int64_t leaf : group.leaves) {
    for (const auto& metric : tasks.config(leaf).metrics) {
      if (metric.name != name) continue;
      combined.higher_is_better = metric.higher_is_better;
      combined.has_standard_error = combined.has_standard_error && make_metric_sum(metric)->has_standard_error();
    }
  }
  return combined;
}

std::optional<double> value_of(const ScoreRule& rule, const RuleInput& input, Term term) {
  const auto& earlier = input.earlier;
  switch (term) {
    case Term::kNumber: return 1.0;
    case Term::kChance: return rule.chance;
    case Term::kPrevious: return earlier.empty() ? std::nullopt : std::optional(earlier.back());
    case Term::kStandardError: return input.standard_error;
    case Term::kBest: break;
  }
  if (earlier.empty()) return std::nullopt;
  return rule.metric.higher_is_better ? *std::ranges::max_element(earlier) : *std::ranges::min_element(earlier);
}

std::string text_of(const ScoreRule::Summand& summand, double value, bool is_first) {
  constexpr const char* kNames[] = {"", "chance", "best", "previous", "stderr"};
  const std::string sign = summand.factor < 0 ? (is_first ? "-" : " - ") : (is_first ? "" : " + ");
  const double factor = std::abs(summand.factor);
  if (summand.term == Term::kNumber) return fmt::format("{}{:.4g}", sign, factor);
  const std::string times = factor == 1 ? "" : fmt::format("{:.4g} ", factor);
  return fmt::format("{}{}{} {:.4g}", sign, times, kNames[static_cast<int>(summand.term)], value);
}

bool compares(double value, Comparison comparison, double limit) {
  switch (comparison) {
    case Comparison::kLess: return value < limit;
    case Comparison::kLessOrEqual: return value <= limit;
    case Comparison::kGreater: return value > limit;
    case Comparison::kGreaterOrEqual: return value >= limit;
  }
  return false;
}

const char* words_of(Comparison comparison) {
  constexpr const char* kComparisons[] = {"less than", "at most", "greater than", "at least"};
  return kComparisons[static_cast<int>(comparison)];
}

bool is_early(const ScoreRule& rule, const RuleInput& input) {
  if (rule.after == ScoreRule::After::kNothing) return false;
  const int64_t now = rule.after == ScoreRule::After::kTokens ? input.tokens : input.step;
  return static_cast<double>(now) < rule.begin;
}

}  // namespace

const RuleSubject::Metric* RuleSubject::find(std::string_view metric) const {
  const auto found = std::ranges::find(metrics, metric, &Metric::name);
  return found == metrics.end() ? nullptr : &*found;
}

std::vector<RuleSubject> rule_subjects(const TaskSet& tasks) {
  std::vector<RuleSubject> subjects;
  for (int64_t task = 0; task < tasks.num_tasks(); ++task) {
    RuleSubject subject{tasks.name(task), {}, tasks.chance(task)};
    for (const auto& metric : tasks.config(task).metrics)
      subject.metrics.push_back({metric.name, metric.higher_is_better, make_metric_sum(metric)->has_standard_error()});
    subjects.push_back(std::move(subject));
  }
  for (const auto& group : tasks.groups()) {
    RuleSubject subject{group.name, {}, group.chance};
    for (const auto& metric : group.metrics) subject.metrics.push_back(metric_of_group(tasks, group, metric.name));
    subjects.push_back(std::move(subject));
  }
  return subjects;
}

RuleDecision decide(const ScoreRule& rule, const RuleInput& input) {
  RuleDecision decision;
  if (is_early(rule, input) || std::isnan(input.value)) return decision;
  double limit = 0;
  std::string sum;
  for (const auto& summand : rule.limit) {
    const auto value = value_of(rule, input, summand.term);
    if (!value) return decision;
    limit += summand.factor * *value;
    sum += text_of(summand, *value, sum.empty());
  }
  decision.limit = limit;
  decision.holds = compares(input.value, rule.comparison, limit);
  const bool is_number = rule.limit.size() == 1 && rule.limit[0].term == Term::kNumber;
  decision.text =
      fmt::format("{} {} is {:.4g}, {}{} {:.4g}{}", rule.task, rule.metric.name, input.value,
                  decision.holds ? "" : "not ", words_of(rule.comparison), limit, is_number ? "" : " (" + sum + ")");
  return decision;
}

}  // namespace athanor::tasks
