#include "eval/results_file.h"

#include <algorithm>
#include <chrono>
#include <set>

#include "base/bounded_json.h"
#include "base/build_info.h"
#include "base/error.h"
#include "base/files.h"
#include "base/hash.h"
#include "tasks/task_config.h"

namespace athanor::inline eval {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// The files of a model's folder that decide its answers. Other files may lie in it, results among them.
bool is_of_model(const fs::path& file) {
  static const std::set<std::string> kNames = {"config.json",
                                               "model.safetensors.index.json",
                                               "tokenizer.json",
                                               "tokenizer_config.json",
                                               "special_tokens_map.json",
                                               "added_tokens.json",
                                               "vocab.json",
                                               "merges.txt",
                                               "athanor.json"};
  return kNames.contains(file.filename().string()) || file.extension() == ".safetensors" ||
         file.extension() == ".model";
}

// Names, sizes and times of files, of a link those of its target: a changed file has another time.
Json describe_files(std::vector<fs::path> files, const fs::path& folder) {
  std::ranges::sort(files);
  Json described = Json::array();
  std::error_code ignored;
  for (const fs::path& file : files)
    described.push_back(fmt::format("{} {} {}", file.lexically_relative(folder).string(), fs::file_size(file, ignored),
                                    fs::last_write_time(file, ignored).time_since_epoch().count()));
  return described;
}

// A checkpoint's manifest has the hashes of all its pieces.
Json identity_of(const ModelSource& source) {
  const fs::path manifest = source.folder / "manifest.json";
  if (fs::exists(manifest)) return {{"manifest", hash_file(manifest)}};
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(source.folder))
    if (is_of_model(entry.path())) files.push_back(entry.path());
  return {{"folder", fs::weakly_canonical(source.folder).string()}, {"files", describe_files(files, source.folder)}};
}

Json selection_json(const EvaluationSettings& settings) {
  const auto& [selection, options, dtype, device, data_ranks] = settings;
  Json json{{"tasks", selection.names},
            {"limit", selection.limit},
            {"fewshot_seed", selection.fewshot_seed},
            {"dtype", dtype},
            {"device", device},
            {"batch_tokens", options.batch_tokens},
            {"window_tokens", options.window_tokens},
            {"no_truncation", options.refuse_truncation}};
  if (selection.num_fewshot) json["num_fewshot"] = *selection.num_fewshot;
  return json;
}

// Whether the members that a table reads have the types that it reads.
bool has_shape(const Json& results) {
  if (!results.is_object() || !results.contains("results")) return false;
  for (const char* part : {"results", "groups"}) {
    if (!results.contains(part)) continue;
    if (!results[part].is_object()) return false;
    for (const auto& [task, scores] : results[part].items())
      if (!scores.is_object()) return false;
  }
  if (!results.contains("group_subtasks")) return true;
  if (!results["group_subtasks"].is_object()) return false;
  for (const auto& [group, tasks] : results["group_subtasks"].items()) {
    if (!tasks.is_array()) return false;
    for (const Json& task : tasks)
      if (!task.is_string()) return false;
  }
  return true;
}

}  // namespace

std::string evaluation_identity(const ModelSource& source, const tasks::TaskSet& tasks,
                                const EvaluationSettings& settings) {
  Json what{{"model", identity_of(source)},
            {"settings", selection_json(settings)},
            {"rows", describe_files(tasks.row_files(), settings.selection.data)},
            {"version", build_info().version}};
  for (int64_t t = 0; t < tasks.num_tasks(); ++t)
    what["tasks"].push_back({tasks.config(t).keys, tasks.num_fewshot(t), tasks.num_documents(t), tasks.stride(t)});
  return hash_hex(what.dump());
}

Json results_document(Json results, const EvaluatedModel& model, const EvaluationSettings& settings,
                      const EvaluationCounts& counts, const std::string& identity, double seconds) {
  const auto& selection = settings.selection;
  Json config{{"model", "athanor"},
              {"model_args", "pretrained=" + model.name},
              {"model_num_parameters", count_parameters(model.config)},
              {"model_dtype", settings.dtype},
              {"batch_size", fmt::format("{} tokens", settings.options.batch_tokens)},
              {"device", settings.device},
              {"limit", selection.limit > 0 ? Json(selection.limit) : Json(nullptr)},
              {"fewshot_seed", selection.fewshot_seed}};
  results["config"] = std::move(config);
  results["date"] = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  results["model_source"] = "athanor";
  results["model_name"] = model.name;
  results["max_length"] = model.config.text_positions();
  results["total_evaluation_time_seconds"] = fmt::format("{:.3f}", seconds);
  Json own{{"version", build_info().version}, {"commit", build_info().commit}};
  if (!identity.empty()) own["evaluation"] = identity;
  if (model.step >= 0) own["step"] = model.step;
  if (model.tokens >= 0) own["tokens"] = model.tokens;
  own["settings"] = selection_json(settings);
  own["data_ranks"] = settings.data_ranks;
  own["documents"] = counts.documents;
  own["requests"] = counts.requests;
  if (counts.taken_up > 0) own["documents_taken_up"] = counts.taken_up;
  own["tokens_of_requests"] = counts.tokens;
  own["tokens_computed"] = counts.computed_tokens;
  own["truncated_requests"] = counts.truncated;
  own["seconds"] = seconds;
  results["athanor"] = std::move(own);
  return results;
}

Json read_results(const fs::path& file) {
  ATHANOR_CHECK_DATA(fs::is_regular_file(file), "{} is no file; name one that athanor eval or lm_eval has written",
                     file.string());
  auto results = find_results(file);
  ATHANOR_CHECK_DATA(results,
                     "{} has no results of an evaluation; name a file that athanor eval or lm_eval has written",
                     file.string());
  return *std::move(results);
}

std::optional<Json> find_results(const fs::path& file) {
  Json results = read_ordered_json(read_file(file));
  return has_shape(results) ? std::optional(std::move(results)) : std::nullopt;
}

}  // namespace athanor::inline eval
