#include "record/evaluation_scores.h"

#include <nlohmann/json.hpp>

namespace athanor::inline record {

nlohmann::ordered_json scores_to_json(const EvaluationScores& scores) {
  auto all = nlohmann::ordered_json::object();
  for (const auto& [task, metrics] : scores) {
    for (const auto& [metric, score] : metrics) {
      auto& entry = all[task][metric];
      entry["value"] = score.value;
      if (score.standard_error) entry["stderr"] = *score.standard_error;
    }
  }
  return all;
}

EvaluationScores scores_from_json(const nlohmann::json& all) {
  EvaluationScores scores;
  if (!all.is_object()) return scores;
  for (const auto& [task, metrics] : all.items()) {
    if (!metrics.is_object()) continue;
    for (const auto& [metric, entry] : metrics.items()) {
      if (!entry.is_object() || !entry.contains("value") || !entry["value"].is_number()) continue;
      TaskScore score{entry["value"].get<double>(), std::nullopt};
      if (entry.contains("stderr") && entry["stderr"].is_number()) score.standard_error = entry["stderr"].get<double>();
      scores[task][metric] = score;
    }
  }
  return scores;
}

}  // namespace athanor::inline record
