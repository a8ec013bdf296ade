#pragma once
// The scores of an evaluation, as metrics.jsonl and events.jsonl have them: task → metric → value and standard error.

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

namespace athanor::inline record {

struct TaskScore {
  double value = 0;
  std::optional<double> standard_error;  ///< none if the metric has none
  bool operator==(const TaskScore&) const = default;
};

/// By the name of a task or group, and that of a metric.
using EvaluationScores = std::map<std::string, std::map<std::string, TaskScore>>;

/// {"arc_easy": {"acc": {"value": 0.2417, "stderr": 0.013}}}, without "stderr" where there is none.
nlohmann::ordered_json scores_to_json(const EvaluationScores& scores);
/// Reads what scores_to_json gave. Leaves out what has another form.
EvaluationScores scores_from_json(const nlohmann::json& scores);

}  // namespace athanor::inline record
