#include "train/evaluation_history.h"

#include <nlohmann/json.hpp>
#include <sstream>

#include "base/bounded_json.h"
#include "base/files.h"

namespace athanor {

nlohmann::ordered_json evaluation_settings(const EvalConfig& config) {
  return {{"limit", config.limit}, {"num_fewshot", config.num_fewshot}};
}

std::vector<EvaluationScores> read_earlier_scores(const std::filesystem::path& events, const EvalConfig& config,
                                                  int64_t step) {
  if (!std::filesystem::is_regular_file(events)) return {};
  const nlohmann::json wanted = nlohmann::json::parse(evaluation_settings(config).dump());
  std::vector<std::pair<int64_t, EvaluationScores>> found;
  const auto forget_after = [&](int64_t last) {
    std::erase_if(found, [last](const auto& each) { return each.first > last; });
  };
  std::istringstream lines(read_file(events));
  for (std::string line; std::getline(lines, line);) {
    const auto event = read_json(line);
    if (!event.is_object() || !event.contains("event") || !event.contains("step")) continue;
    if (!event["event"].is_string() || !event["step"].is_number_integer()) continue;
    const auto kind = event["event"].get<std::string>();
    const auto at = event["step"].get<int64_t>();
    if (kind == "start" || kind == "resume" || kind == "went_back") forget_after(at);
    if (kind != "evaluation" || event.value("settings", nlohmann::json()) != wanted) continue;
    forget_after(at - 1);
    found.emplace_back(at, scores_from_json(event.value("results", nlohmann::json())));
  }
  forget_after(step);
  std::vector<EvaluationScores> scores;
  for (auto& [at, each] : found) scores.push_back(std::move(each));
  return scores;
}

}  // namespace athanor
