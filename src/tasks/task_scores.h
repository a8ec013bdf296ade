#pragma once
// Adds up the answers to a TaskSet's documents, and gives results in the form of lm_eval 0.4.13.

#include <memory>
#include <nlohmann/json.hpp>
#include <span>

#include "tasks/task_set.h"

namespace athanor::tasks {

/// Memory: a bit for each document and metric that is 0 or 1, else one number.
class TaskScores {
 public:
  /// The set must outlive the scores.
  explicit TaskScores(const TaskSet& tasks);
  ~TaskScores();

  /// Adds a document. Documents of a task come in their order; not all have to come, and results() are of those that
  /// did. @param answers  one for each request of the document, in their order.
  void add(const TaskDocument& document, std::span<const Answer> answers);

  /// Returns what lm_eval writes for the document with --log_samples.
  nlohmann::ordered_json sample(const TaskDocument& document, std::span<const Answer> answers) const;

  /// Returns `results`, `groups` (if a group aggregates), `group_subtasks`, `configs`, `versions`, `n-shot`,
  /// `higher_is_better` and `n-samples`, as lm_eval's evaluate() does.
  nlohmann::ordered_json results() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace athanor::tasks
