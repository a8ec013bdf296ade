#include "eval/gate_evaluation.h"

#include <chrono>
#include <exception>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/text.h"
#include "base/wall_clock.h"
#include "eval/evaluation.h"
#include "eval/model_evaluation.h"
#include "eval/results_table.h"
#include "ops/device_traits.h"
#include "record/run_folder.h"
#include "tasks/score_rule.h"
#include "tasks/task_scores.h"
#include "train/unreadable_data.h"

namespace athanor::inline eval {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

EvaluationSettings settings_of(const RunConfig& config) {
  const EvalConfig& eval = config.eval;
  EvaluationSettings settings;
  auto& selection = settings.selection;
  selection.names = eval.tasks;
  selection.include_paths = {eval.include_paths.begin(), eval.include_paths.end()};
  selection.data = eval.data;
  if (eval.num_fewshot >= 0) selection.num_fewshot = eval.num_fewshot;
  selection.limit = eval.limit;
  settings.options.batch_tokens = eval.batch_tokens;
  settings.options.window_tokens = eval.window_tokens;
  // Tensor ranks that share the tokens share them evenly.
  if (config.parallelism.sequence_parallel) settings.options.multiple_of = config.parallelism.tensor_parallel_degree;
  settings.dtype = config.train.dtype;
  return settings;
}

struct Rule {
  tasks::ScoreRule rule;
  bool stops;
};

// Reads the rules of a list. What is wrong with any of them is added to `faults`.
void read_rules(const std::vector<std::string>& texts, const std::string& field, bool stops,
                const std::vector<tasks::RuleSubject>& subjects, std::vector<Rule>& rules,
                std::vector<std::string>& faults) {
  for (size_t i = 0; i < texts.size(); ++i) {
    try {
      rules.push_back({tasks::parse_score_rule(texts[i], subjects, fmt::format("{}[{}]", field, i)), stops});
    } catch (const ConfigError& error) {
      faults.emplace_back(error.what());
    }
  }
}

std::vector<Rule> read_rules(const EvalConfig& config, const std::vector<tasks::RuleSubject>& subjects) {
  std::vector<Rule> rules;
  std::vector<std::string> faults;
  read_rules(config.warn_if, "eval.warn_if", false, subjects, rules, faults);
  read_rules(config.stop_if, "eval.stop_if", true, subjects, rules, faults);
  ATHANOR_CHECK(faults.empty(), "{}", join(faults, "\n"));
  return rules;
}

EvaluationScores scores_of(const Json& results, const std::vector<tasks::RuleSubject>& subjects) {
  EvaluationScores scores;
  for (const auto& subject : subjects) {
    const auto found = results.find(subject.name);
    if (found == results.end()) continue;
    for (const auto& metric : subject.metrics) {
      const auto value = found->find(metric.name + ",none"), error = found->find(metric.name + "_stderr,none");
      if (value == found->end() || !value->is_number()) continue;
      TaskScore& score = scores[subject.name][metric.name];
      score.value = value->get<double>();
      if (error != found->end() && error->is_number()) score.standard_error = error->get<double>();
    }
  }
  return scores;
}

const TaskScore* find_score(const EvaluationScores& scores, const tasks::ScoreRule& rule) {
  const auto task = scores.find(rule.task);
  if (task == scores.end()) return nullptr;
  const auto metric = task->second.find(rule.metric.name);
  return metric == task->second.end() ? nullptr : &metric->second;
}

tasks::RuleInput input_of(const tasks::ScoreRule& rule, const TaskScore& score,
                          const std::vector<EvaluationScores>& earlier, const RunPosition& position) {
  tasks::RuleInput input{score.value, score.standard_error, {}, position.step, position.tokens_seen};
  for (const auto& scores : earlier) {
    if (const TaskScore* before = find_score(scores, rule)) input.earlier.push_back(before->value);
  }
  return input;
}

}  // namespace

struct GateEvaluation::Prepared {
  EvaluationSettings settings;
  tasks::TaskSet tasks;
  Tokenizer tokenizer;
  RequestEncoder encoder;
  std::vector<tasks::RuleSubject> subjects;
  std::vector<Rule> rules;

  Prepared(const RunConfig& config, const fs::path& tokenizer_file, const DataIdentity& data, const Worked& worked)
      : settings(settings_of(config)), tasks(tasks::TaskSet::load(settings.selection, worked)),
        tokenizer(Tokenizer::load(tokenizer_file)),
        encoder(tokenizer, beginning_in_training(data.text_template, data.eos_id), config.model.text_positions(),
                tokenizer_file.string()),
        subjects(tasks::rule_subjects(tasks)), rules(read_rules(config.eval, subjects)) {}

  EvaluationReport lead(TrainState& state, const std::vector<EvaluationScores>& earlier,
                        const std::function<bool()>& must_end);
  fs::path write(const TrainState& state, const Json& document) const;
  std::vector<BrokenRule> decide(const EvaluationScores& scores, const std::vector<EvaluationScores>& earlier,
                                 const RunPosition& position) const;
};

// The name has no hash at its end, which the results of `athanor eval` have. A full disk costs the file, not the run.
fs::path GateEvaluation::Prepared::write(const TrainState& state, const Json& document) const {
  const fs::path file =
      RunFolder{state.config.train.run_dir}.evals() / fmt::format("step-{:08}.json", state.position.step);
  try {
    std::error_code failed;
    fs::create_directories(file.parent_path(), failed);  // a failure shows when the file is written
    write_file_atomically(file, document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
    return file;
  } catch (const IoError& error) {
    log::warn("step {}: the results of the evaluation were not written: {}; the run continues", state.position.step,
              error.what());
    return {};
  }
}

std::vector<BrokenRule> GateEvaluation::Prepared::decide(const EvaluationScores& scores,
                                                         const std::vector<EvaluationScores>& earlier,
                                                         const RunPosition& position) const {
  std::vector<BrokenRule> broken;
  for (const auto& [rule, stops] : rules) {
    const TaskScore* score = find_score(scores, rule);
    if (!score) continue;
    const auto decision = tasks::decide(rule, input_of(rule, *score, earlier, position));
    if (decision.holds) broken.push_back({rule.text, stops, decision.text, score->value, decision.limit});
  }
  return broken;
}

EvaluationReport GateEvaluation::Prepared::lead(TrainState& state, const std::vector<EvaluationScores>& earlier,
                                                const std::function<bool()>& must_end) {
  const auto began = std::chrono::steady_clock::now();
  tasks::TaskScores sums(tasks);
  EvaluationInput input;
  input.tasks = &tasks;
  input.encoder = &encoder;
  input.answered = [&](const tasks::TaskDocument& document, const Answers& answers) { sums.add(document, answers); };
  input.worked = [&](int64_t amount) { state.model.mesh.world().note_work(amount); };
  input.must_end = must_end;
  input.shows_progress = false;  // a run has its own line
  log::info("step {}: evaluating {} documents", state.position.step,
            format_thousands(static_cast<double>(tasks.num_documents())));
  const EvaluationCounts counts = athanor::evaluate(state.model, input, settings.options);
  EvaluationReport report;
  report.was_interrupted = counts.was_interrupted;
  if (report.was_interrupted) return report;
  report.documents = counts.documents;
  report.seconds = seconds_since(began);
  EvaluationSettings known = settings;
  known.device = ops::traits_of(state.model.device()).kind;
  known.data_ranks = state.model.mesh.layout().data();
  const EvaluatedModel model{state.config.train.run_dir, state.config.model, state.position.step,
                             state.position.tokens_seen};
  const Json chances = chances_of(tasks);
  Json results = results_document(sums.results(), model, known, counts, "", report.seconds);
  results["athanor"]["chance"] = chances;
  report.scores = scores_of(results["results"], subjects);
  report.table = results_table({{fmt::format("step-{:08}", state.position.step), results}}, chances);
  report.file = write(state, results);
  report.rules = decide(report.scores, earlier, state.position);
  return report;
}

GateEvaluation::GateEvaluation() = default;
GateEvaluation::~GateEvaluation() = default;

void GateEvaluation::prepare(const RunConfig& config, const fs::path& tokenizer, const DataIdentity& data,
                             const Team& team) {
  if (is_prepared_) return;
  team.on_first([&] {
    ATHANOR_CHECK_DATA(fs::exists(tokenizer), "eval: {} is not there, the tokenizer of the data, which tasks need",
                       tokenizer.string());
    prepared_ = std::make_unique<Prepared>(config, tokenizer, data, team.worked);
    // What is wrong with a document is found before the first step, not at the first evaluation.
    EvaluationInput input;
    input.tasks = &prepared_->tasks;
    input.encoder = &prepared_->encoder;
    input.worked = team.worked;
    check_requests(input, prepared_->settings.options);
  });
  is_prepared_ = true;
}

EvaluationReport GateEvaluation::evaluate(TrainState& state, const std::vector<EvaluationScores>& earlier,
                                          const std::function<bool()>& must_end) {
  const EvaluationOptions options = settings_of(state.config).options;
  EvaluationReport report;
  std::exception_ptr failure;
  try {
    if (prepared_)
      report = prepared_->lead(state, earlier, must_end);
    else
      athanor::evaluate(state.model, {}, options);
  } catch (const DataError&) {
    failure = std::current_exception();
  } catch (const IoError&) {
    failure = std::current_exception();
  }
  agree_on_reading(state.model.mesh.world().all(), failure);
  return report;
}

}  // namespace athanor::inline eval
