#include <fmt/core.h>

#include <map>
#include <optional>
#include <set>
#include <sstream>

#include "base/files.h"
#include "base/log.h"
#include "base/text.h"
#include "checkpoint/listing.h"
#include "cli/core.h"
#include "cli/terminal_style.h"
#include "eval/model_evaluation.h"
#include "eval/results_table.h"
#include "memory/rank_share.h"
#include "ops/cpu_allocator.h"
#include "ops/tensor.h"
#include "parallel/share.h"
#include "plot/run_name.h"
#include "plot/score_figures.h"
#include "run/in_world.h"
#include "run/rank_devices.h"
#include "tasks/task_config.h"

namespace athanor::inline cli {
namespace {

namespace fs = std::filesystem;

struct ChosenModel {
  fs::path path;
  size_t given = 0;  // which of the given paths it is of
};

// The checkpoints and models of the given paths, those of a run from the oldest on. A step of which both were kept
// counts once.
std::vector<ChosenModel> models_of(const EvalArguments& given) {
  std::vector<ChosenModel> models;
  for (size_t i = 0; i < given.models.size(); ++i) {
    if (!given.every) {
      models.push_back({given.models[i], i});
      continue;
    }
    const auto saved = find_checkpoints(given.models[i]);
    const size_t before = models.size();
    int64_t last_step = -1;
    ATHANOR_CHECK(saved.empty() || saved.front().step >= 0,
                  "--every shows the checkpoints of runs, and {} has no step; leave --every out", given.models[i]);
    for (auto checkpoint = saved.rbegin(); checkpoint != saved.rend(); ++checkpoint) {
      if (checkpoint->state != CheckpointState::kThere) continue;
      if (checkpoint->step == last_step && models.size() > before) models.pop_back();  // the full checkpoint comes last
      models.push_back({checkpoint->path, i});
      last_step = checkpoint->step;
    }
    ATHANOR_CHECK_CHECKPOINT(models.size() > before, "{} has no checkpoints yet", given.models[i]);
  }
  return models;
}

EvaluationSettings settings_of(const EvalArguments& given, const std::string& device) {
  EvaluationSettings settings;
  auto& selection = settings.selection;
  selection.names = given.tasks;
  selection.include_paths = {given.include_paths.begin(), given.include_paths.end()};
  selection.data = given.data;
  if (given.num_fewshot >= 0) selection.num_fewshot = given.num_fewshot;
  selection.limit = given.limit;
  selection.fewshot_seed = static_cast<uint64_t>(given.fewshot_seed);
  settings.options = {given.batch_tokens, given.window_tokens, given.no_truncation};
  settings.dtype = given.dtype;
  settings.device = device;
  return settings;
}

// The metric of the progression is known before hours of work.
void check_metric(const std::string& metric, const tasks::TaskSet& tasks) {
  if (metric.empty()) return;
  std::set<std::string> known;
  for (int64_t t = 0; t < tasks.num_tasks(); ++t)
    for (const auto& use : tasks.config(t).metrics) known.insert(use.name);
  const std::vector<std::string> names(known.begin(), known.end());
  ATHANOR_CHECK(known.contains(metric), "--metric {}: no task has it{}; there are {}", metric,
                did_you_mean(metric, names), join(names));
}

ScoreHistory history_of(const std::vector<ChosenModel>& models, const std::vector<NamedResults>& results,
                        const EvalArguments& given, const nlohmann::ordered_json& chance) {
  std::vector<RunResults> runs;
  for (const std::string& path : given.models) runs.push_back({name_of_run(path), {}});
  for (size_t i = 0; i < models.size(); ++i) runs[models[i].given].results.push_back(results[i].results);
  return make_score_history(
      runs, {.metric = given.metric, .tasks = {}, .chance = chance.get<std::map<std::string, double>>()});
}

// Results of a run are named by the run, too: every run has a step-00001000.
std::string column_of(const fs::path& file) {
  const fs::path folder = fs::absolute(file).parent_path();
  const std::string name = file.stem().string();
  return folder.filename() == "evals" ? folder.parent_path().filename().string() + "/" + name : name;
}

// A table of each run's checkpoints; with results of --compare, also the last checkpoint of each in detail.
std::vector<NamedResults> show_progression(const std::vector<ChosenModel>& models,
                                           const std::vector<NamedResults>& results, const EvalArguments& given,
                                           const nlohmann::ordered_json& chance) {
  const ScoreHistory history = history_of(models, results, given, chance);
  if (!given.figure.empty()) {
    write_file_atomically(given.figure, draw_scores(history, ScoreAxis::kTokensIfKnown));
    log::info("{} written", given.figure);
  }
  if (!given.json) fmt::print("{}", score_table(history, terminal_width()));
  if (given.json || given.compare.empty()) return {};
  fmt::print("\n");
  std::vector<NamedResults> last;
  for (size_t i = 0; i < models.size(); ++i)
    if (i + 1 == models.size() || models[i].given != models[i + 1].given) last.push_back(results[i]);
  return last;
}

void show_results(const std::vector<ChosenModel>& models, const std::vector<NamedResults>& results,
                  const EvalArguments& given, const nlohmann::ordered_json& chance) {
  std::vector<NamedResults> shown = given.every ? show_progression(models, results, given, chance) : results;
  if (given.json) {
    for (const auto& model : results) fmt::print("{}\n", model.results.dump());
    return;
  }
  if (shown.empty()) return;
  for (const std::string& file : given.compare) shown.push_back({column_of(file), read_results(file)});
  fmt::print("{}", results_table(shown, chance));
}

// Columns with one name get the paths of their models.
void tell_apart(std::vector<NamedResults>& results, const std::vector<ChosenModel>& models) {
  std::map<std::string, int> times;
  for (const auto& each : results) ++times[each.name];
  for (size_t i = 0; i < results.size(); ++i)
    if (times[results[i].name] > 1) results[i].name = models[i].path.string();
}

int evaluate(const EvalArguments& given, comm::World& world) {
  const bool is_first = world.rank() == 0;
  const at::Device device = agree_on_devices(given.device, "--device", world);
  at::set_num_threads(threads_of_rank(world, 0).threads);
  const EvaluationSettings settings = settings_of(given, c10::DeviceTypeName(device.type(), true));
  std::vector<ChosenModel> models;
  std::optional<tasks::TaskSet> tasks;
  std::string names;
  ResultsPlace place;
  if (is_first) {
    for (const std::string& file : given.compare) read_results(file);
    tasks = tasks::TaskSet::load(settings.selection);
    check_metric(given.metric, *tasks);
    models = models_of(given);
    if (!given.every)
      for (const auto& model : models) open_model_source(model.path);  // all are there before hours of work
    place =
        plan_results(given.out, models.size(), given.samples);  // refuses what cannot be written, before hours of work
    place.skips_damaged = given.every;
    for (const auto& model : models) names += model.path.string() + "\n";
  }
  names = broadcast_text(world.all(), names);
  const LoadOptions load{.compute_type = ops::scalar_type(number_type(given.dtype, "--dtype")),
                         .device = device,
                         .overrides = given.overrides};
  std::vector<NamedResults> results;
  std::istringstream lines(names);
  std::vector<ChosenModel> evaluated_models;
  size_t num_seen = 0;
  for (std::string path; std::getline(lines, path);) {
    auto evaluated = evaluate_model(path, world, load, tasks ? &*tasks : nullptr, settings, place);
    const size_t index = num_seen++;
    if (!is_first || !evaluated) continue;
    results.push_back(std::move(*evaluated));
    evaluated_models.push_back(models[index]);
  }
  if (is_first) {
    ATHANOR_CHECK_CHECKPOINT(!results.empty(), "no checkpoint could be evaluated; the warnings above tell why");
    tell_apart(results, evaluated_models);
    show_results(evaluated_models, results, given, chances_of(*tasks));
  }
  return 0;
}

}  // namespace
}  // namespace athanor::inline cli

ATHANOR_CORE_ENTRY(eval) {
  using namespace athanor;
  const auto& given = *static_cast<const EvalArguments*>(arguments);
  ops::install_caching_cpu_allocator();
  return in_world({}, [&](comm::World& world, RunContext&) { return evaluate(given, world); });
}
