#include <fmt/core.h>

#include <optional>
#include <sstream>

#include "base/files.h"
#include "base/log.h"
#include "base/text.h"
#include "checkpoint/listing.h"
#include "cli/core.h"
#include "eval/model_evaluation.h"
#include "eval/results_table.h"
#include "ops/cpu_allocator.h"
#include "parallel/share.h"
#include "train/in_world.h"
#include "train/rank_devices.h"
#include "train/rank_share.h"

namespace athanor {
namespace {

namespace fs = std::filesystem;

// The checkpoints and models of the given paths, those of a run from the oldest on. A step of which both were kept
// counts once.
std::vector<fs::path> models_of(const EvalArguments& given) {
  std::vector<fs::path> models;
  for (const std::string& path : given.models) {
    if (!given.every) {
      models.emplace_back(path);
      continue;
    }
    const auto found = find_checkpoints(path);
    const size_t before = models.size();
    int64_t last_step = -1;
    for (auto each = found.rbegin(); each != found.rend(); ++each) {
      if (each->state != CheckpointState::kThere) continue;
      if (each->step == last_step && models.size() > before) models.pop_back();  // the full checkpoint comes last
      models.push_back(each->path);
      last_step = each->step;
    }
    ATHANOR_CHECK_CHECKPOINT(models.size() > before, "{} has no checkpoints yet", path);
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

void print_table(const std::vector<NamedResults>& models, const EvalArguments& given,
                 const nlohmann::ordered_json& chance) {
  if (given.json) {
    for (const auto& model : models) fmt::print("{}\n", model.results.dump());
    return;
  }
  std::vector<NamedResults> shown = models;
  for (const std::string& file : given.compare) shown.push_back({fs::path(file).stem().string(), read_results(file)});
  fmt::print("{}", results_table(shown, chance));
}

int run(const EvalArguments& given, comm::World& world) {
  const bool is_first = world.rank() == 0;
  const at::Device device = agree_on_devices(given.device, "--device", world);
  at::set_num_threads(threads_of_rank(world, 0).threads);
  const EvaluationSettings settings = settings_of(given, c10::DeviceTypeName(device.type(), true));
  std::vector<fs::path> models;
  std::optional<tasks::TaskSet> tasks;
  std::string names;
  ResultsPlace place;
  if (is_first) {
    for (const std::string& file : given.compare) read_results(file);
    tasks = tasks::TaskSet::load(settings.selection);
    models = models_of(given);
    place =
        plan_results(given.out, models.size(), given.samples);  // refuses what cannot be written, before hours of work
    for (const auto& model : models) names += model.string() + "\n";
  }
  names = broadcast_text(world.all(), names);
  const LoadOptions load{.compute_type = given.dtype == "bfloat16" ? at::kBFloat16 : at::kFloat,
                         .device = device,
                         .overrides = given.overrides};
  std::vector<NamedResults> results;
  std::istringstream lines(names);
  for (std::string path; std::getline(lines, path);) {
    auto evaluated = evaluate_model(path, world, load, tasks ? &*tasks : nullptr, settings, place);
    if (is_first) results.push_back(std::move(evaluated));
  }
  if (is_first) print_table(results, given, chances_of(*tasks));
  return 0;
}

}  // namespace
}  // namespace athanor

ATHANOR_CORE_ENTRY(eval) {
  using namespace athanor;
  const auto& given = *static_cast<const EvalArguments*>(arguments);
  ops::install_caching_cpu_allocator();
  return in_world({}, [&](comm::World& world, RunContext&) { return run(given, world); });
}
