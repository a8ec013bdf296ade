#include "train/evaluation_history.h"

#include <nlohmann/json.hpp>
#include <sstream>

#include "base/bounded_json.h"
#include "base/files.h"

namespace athanor {
namespace {

// An event of a run's history.
struct Event {
  std::string kind;
  int64_t step;
  nlohmann::json all;
};

bool begins_attempt(const Event& event) {
  return event.kind == "start" || event.kind == "resume" || event.kind == "went_back";
}

// Calls `take` for each event. Lines that cannot be read are ignored.
template <class Take>
void for_each_event(const std::filesystem::path& file, const Take& take) {
  if (!std::filesystem::is_regular_file(file)) return;
  std::istringstream lines(read_file(file));
  for (std::string line; std::getline(lines, line);) {
    const auto event = read_json(line);
    if (!event.is_object() || !event.contains("event") || !event.contains("step")) continue;
    if (!event["event"].is_string() || !event["step"].is_number_integer()) continue;
    take(Event{event["event"].get<std::string>(), event["step"].get<int64_t>(), event});
  }
}

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
  for_each_event(events, [&](const Event& event) {
    if (begins_attempt(event)) forget_after(event.step);
    if (event.kind != "evaluation" || event.all.value("settings", nlohmann::json()) != wanted) return;
    forget_after(event.step - 1);
    found.emplace_back(event.step, scores_from_json(event.all.value("results", nlohmann::json())));
  });
  forget_after(step);
  std::vector<EvaluationScores> scores;
  for (auto& [at, each] : found) scores.push_back(std::move(each));
  return scores;
}

bool was_evaluated(const std::filesystem::path& events, int64_t step) {
  bool found = false, should_stop = false;
  for_each_event(events, [&](const Event& event) {
    if (begins_attempt(event) && event.step < step) found = should_stop = false;
    if (event.step != step) return;
    if (event.kind == "evaluation") found = true;
    if (event.kind == "rule" && event.all.value("action", nlohmann::json()) == "stop") should_stop = true;
    if (event.kind == "stop" && event.all.contains("rule")) should_stop = false;
  });
  return found && !should_stop;
}

}  // namespace athanor
