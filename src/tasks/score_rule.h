#pragma once
// Rules on the scores of tasks, such as "arc_easy < chance + 2 stderr after 5e9 tokens": how they are read, and whether
// they hold after an evaluation. docs/evaluation-gate.md has the language.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tasks/task_set.h"

namespace athanor::tasks {

/// A task or group that a rule may name, with what is known of it before it is evaluated.
struct RuleSubject {
  struct Metric {
    std::string name;
    bool higher_is_better = true;
    bool has_standard_error = true;
  };
  std::string name;
  std::vector<Metric> metrics;   ///< the first one is meant if a rule names none; empty: a group that combines none
  std::optional<double> chance;  ///< the score of guessing, for the first metric and the other accuracies

  const Metric* find(std::string_view metric) const;
};

/// Returns the tasks of a set, then its groups.
std::vector<RuleSubject> rule_subjects(const TaskSet& tasks);

struct ScoreRule {
  enum class Comparison { kLess, kLessOrEqual, kGreater, kGreaterOrEqual };
  enum class Term { kNumber, kChance, kBest, kPrevious, kStandardError };
  enum class After { kNothing, kTokens, kSteps };
  struct Summand {
    double factor = 1;  ///< the number itself, or what the term is multiplied by
    Term term = Term::kNumber;
  };

  std::string text;  ///< as it was given
  std::string task;
  RuleSubject::Metric metric;
  double chance = 0;  ///< read only by a term kChance
  Comparison comparison = Comparison::kLess;
  std::vector<Summand> limit;  ///< their sum is the right side; not empty
  After after = After::kNothing;
  double begin = 0;  ///< the rule does not hold before this many tokens or steps
};

/// Reads a rule.
/// @param where  begins a message: "eval.stop_if[0]".
/// @throws ConfigError in one line, with the character at fault and the nearest name, for a rule that cannot be read.
///         Other errors are a task or metric that is not among the subjects, a chance that is not stated, and a
///         standard error that the metric lacks.
ScoreRule parse_score_rule(const std::string& text, const std::vector<RuleSubject>& subjects, const std::string& where);

/// What a rule is asked about.
struct RuleInput {
  double value = 0;
  std::optional<double> standard_error = {};
  std::vector<double> earlier = {};  ///< the values of this branch's earlier evaluations, in their order
  int64_t step = 0, tokens = 0;
};

struct RuleDecision {
  bool holds = false;
  double limit = 0;  ///< the right side; 0 if it is not defined
  std::string text;  ///< "arc_easy acc is 0.2417, less than 0.2761 (chance 0.25 + 2 stderr 0.01305)"; "" if it is not
};

/// A rule does not hold before its number of tokens or steps, nor if a part of it is not defined: best and previous in
/// a branch's first evaluation, the standard error of a single document, a score that is not a number.
RuleDecision decide(const ScoreRule& rule, const RuleInput& input);

}  // namespace athanor::tasks
