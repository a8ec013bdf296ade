#include "run/evaluation_history.h"

#include "record/events.h"

namespace athanor::inline run {
namespace {

// Whether a line, which another program may have written, has its step.
bool has_step(const Event& event) { return event.integer("step", -1) >= 0; }

}  // namespace

nlohmann::ordered_json evaluation_settings(const EvalConfig& config) {
  return {{"limit", config.limit}, {"num_fewshot", config.num_fewshot}};
}

std::vector<EvaluationScores> read_earlier_scores(const std::filesystem::path& events, const EvalConfig& config,
                                                  int64_t step) {
  const nlohmann::json wanted = nlohmann::json::parse(evaluation_settings(config).dump());
  std::vector<std::pair<int64_t, EvaluationScores>> found;
  const auto forget_after = [&](int64_t last) {
    std::erase_if(found, [last](const auto& each) { return each.first > last; });
  };
  for_each_event(events, 0, [&](const Event& event) {
    if (!has_step(event)) return;
    if (event.is_start()) forget_after(event.step);
    if (event.kind != "evaluation" || event.line.value("settings", nlohmann::json()) != wanted) return;
    forget_after(event.step - 1);
    found.emplace_back(event.step, scores_from_json(event.line.value("results", nlohmann::json())));
  });
  forget_after(step);
  std::vector<EvaluationScores> scores;
  for (auto& [at, each] : found) scores.push_back(std::move(each));
  return scores;
}

bool was_evaluated(const std::filesystem::path& events, int64_t step) {
  bool found = false, should_stop = false;
  for_each_event(events, 0, [&](const Event& event) {
    if (!has_step(event)) return;
    if (event.is_start() && event.step < step) found = should_stop = false;
    if (event.step != step) return;
    if (event.kind == "evaluation") found = true;
    if (event.kind == "rule" && event.line.value("action", nlohmann::json()) == "stop") should_stop = true;
    if (event.kind == "stop" && event.line.contains("rule")) should_stop = false;
  });
  return found && !should_stop;
}

}  // namespace athanor::inline run
