#include "run/run_gate.h"

#include <sstream>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "config/toml_reader.h"
#include "parallel/share.h"
#include "record/events.h"
#include "record/run_folder.h"

namespace athanor::inline run {

RunGate::RunGate(RunEvaluation* evaluation, TrainState& state, RunSaves& saves, RunContext& at,
                 const SignalGuard& signals)
    : evaluation_(evaluation), state_(state), saves_(saves), at_(at), signals_(signals) {
  const EvalConfig& config = state.run_config.eval;
  ATHANOR_ASSERT(config.interval == 0 || evaluation);
  if (config.interval == 0) evaluation_ = nullptr;
  if (evaluation_ && state.model.mesh.is_first())
    earlier_ = read_earlier_scores(RunFolder{state.config.train.run_dir}.events(), config, state.position.step);
}

bool RunGate::is_due(bool is_last) const {
  return evaluation_ && (is_last || state_.position.step % state_.run_config.eval.interval == 0);
}

bool RunGate::is_due_on_start() const {
  return evaluation_ && state_.run_config.eval.on_start && state_.position.step == 0;
}

// The step that was the last one, before the run was made longer, was to be evaluated too.
bool RunGate::was_last_before() const {
  if (state_.earlier_config.empty()) return false;
  try {
    const RunConfig before = parse_run_config(state_.earlier_config, "the earlier configuration");
    return before.eval.interval > 0 && before.train.steps == state_.position.step;
  } catch (const Error&) {  // written by another version
    return false;
  }
}

bool RunGate::is_owed(bool is_last) const {
  if (!evaluation_ || state_.position.step == 0) return false;
  Mesh& mesh = state_.model.mesh;
  const auto is_owed_here = [&] {
    return (is_due(is_last) || was_last_before()) &&
           !was_evaluated(RunFolder{state_.config.train.run_dir}.events(), state_.position.step);
  };
  return !broadcast_text(mesh.world().all(), mesh.is_first() && is_owed_here() ? "owed" : "").empty();
}

EvaluationScores RunGate::evaluate() {
  at_.enter("evaluate", board::Phase::kEvaluate);
  EvaluationReport report =
      evaluation_->evaluate(state_, earlier_, [this] { return signals_.stop_signal().has_value(); });
  tell(report);
  const std::string outcome = broadcast_text(state_.model.mesh.world().all(), report.was_interrupted ? "interrupted"
                                                                              : reason_.empty()      ? "continues"
                                                                                                     : "stops");
  stops_ = outcome == "stops";
  was_interrupted_ = outcome == "interrupted";
  if (!report.was_interrupted) earlier_.push_back(report.scores);
  return report.scores;
}

void RunGate::tell(const EvaluationReport& report) {
  if (!state_.model.mesh.is_first()) return;
  const int64_t step = state_.position.step;
  if (report.was_interrupted) return log::info("step {}: a signal has ended the evaluation; it has no result", step);
  log::info("step {}: evaluated {} documents in {:.1f} s{}", step,
            format_thousands(static_cast<double>(report.documents)), report.seconds,
            report.file.empty() ? "" : "; " + report.file.string() + " has all results");
  std::istringstream lines(report.table);
  for (std::string line; std::getline(lines, line);) log::info("  {}", line);
  nlohmann::ordered_json more{{"tokens", state_.position.tokens_seen},
                              {"documents", report.documents},
                              {"seconds", report.seconds},
                              {"path", report.file.string()},
                              {"settings", evaluation_settings(state_.run_config.eval)},
                              {"results", scores_to_json(report.scores)}};
  saves_.tell("evaluation", std::move(more));
  if (step == 0) return;  // a run does not stop before it has begun
  for (const BrokenRule& rule : report.rules) tell(rule);
}

// The first rule that stops the run is the reason; further ones are recorded.
void RunGate::tell(const BrokenRule& rule) {
  if (rule.stops && reason_.empty()) reason_ = fmt::format("eval.stop_if \"{}\": {}", rule.rule, rule.text);
  if (!rule.stops)
    log::warn("step {}: the rule eval.warn_if \"{}\" holds: {}", state_.position.step, rule.rule, rule.text);
  saves_.tell("rule", {{"rule", rule.rule},
                       {"action", rule.stops ? "stop" : "warn"},
                       {"text", rule.text},
                       {"value", rule.value},
                       {"limit", rule.limit}});
}

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
