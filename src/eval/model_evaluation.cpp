#include "eval/model_evaluation.h"

#include <chrono>
#include <map>
#include <optional>

#include "base/error.h"
#include "base/files.h"
#include "base/hash.h"
#include "base/log.h"
#include "parallel/share.h"
#include "tasks/task_config.h"
#include "tasks/task_scores.h"

namespace athanor::inline eval {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

std::string step_name(const ModelSource& source) {
  if (source.step >= 0) return fmt::format("step-{:08d}", source.step);
  return fs::weakly_canonical(source.folder).filename().string();
}

// The run that a checkpoint or model is in; empty if it is in none.
fs::path run_of(const ModelSource& source) {
  const fs::path run = fs::weakly_canonical(source.folder).parent_path().parent_path();
  return fs::exists(run / "config.toml") ? run : fs::path();
}

// Two evaluations of one checkpoint have different names.
fs::path output_of(const ModelSource& source, const ResultsPlace& place, const std::string& identity) {
  const std::string name = fmt::format("{}-{}.json", step_name(source), identity.substr(0, 8));
  if (!place.out.empty()) return place.is_folder ? place.out / name : place.out;
  const fs::path run = run_of(source);
  return run.empty() ? fs::path() : run / "evals" / name;
}

// The results of the same evaluation, if the file is there.
std::optional<Json> finished_results(const fs::path& out, const std::string& identity) {
  if (out.empty() || !fs::exists(out)) return std::nullopt;
  ATHANOR_CHECK(fs::is_regular_file(out), "--out {} is no file; name another one", out.string());
  auto results = find_results(out);
  ATHANOR_CHECK(results,
                "{} is there and has no results of an evaluation; name another file with --out, or move it away",
                out.string());
  const Json* own =
      results->contains("athanor") && (*results)["athanor"].is_object() ? &(*results)["athanor"] : nullptr;
  const bool is_same = own && own->contains("evaluation") && (*own)["evaluation"] == identity;
  ATHANOR_CHECK(is_same,
                "{} has the results of another evaluation (of another model, other tasks or rows, or with other "
                "options); name another file with --out, or remove it",
                out.string());
  return results;
}

fs::path samples_of(const fs::path& out) {
  fs::path folder = out;
  return out.extension() == ".json" ? folder.replace_extension(".samples") : fs::path(out.string() + ".samples");
}

// Refuses a folder with anything but samples, which are made again.
void check_samples_folder(const fs::path& folder) {
  if (!fs::exists(folder)) return;
  ATHANOR_CHECK(
      fs::is_directory(folder),
      "--samples: {} is a file, where the folder of samples would be; name another file with --out, or move it away",
      folder.string());
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    ATHANOR_CHECK(entry.is_regular_file() && name.starts_with("samples_") && name.ends_with(".jsonl"),
                  "--samples: {} has {}, which is no file of samples; move it away, or name another file with --out",
                  folder.string(), name);
  }
}

// A file of samples for each task, made new by each process: the answers that an earlier one has left come again.
class Samples {
 public:
  Samples(const fs::path& out, const tasks::TaskSet& tasks) : folder_(samples_of(out)), tasks_(tasks) {
    check_samples_folder(folder_);
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void add(const tasks::TaskDocument& document, const Json& sample) {
    if (document.task != task_) file_.emplace(folder_ / ("samples_" + tasks_.name(document.task) + ".jsonl"));
    task_ = document.task;
    file_->append(sample.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
  }

 private:
  fs::path folder_;
  const tasks::TaskSet& tasks_;
  int64_t task_ = -1;
  std::optional<AppendFile> file_;
};

// A run that trains may remove a checkpoint meanwhile, and another may be damaged.
std::optional<ModelSource> open_or_pass_over(const fs::path& path, const ResultsPlace& place) {
  if (!place.skips_damaged) return open_model_source(path);
  try {
    return open_model_source(path);
  } catch (const Error& error) {
    log::warn("{} is passed over: {}", path.string(), error.what());
    return std::nullopt;
  }
}

void warn_of_truncation(const EvaluationCounts& counts, const tasks::TaskSet& tasks, const RequestEncoder& encoder) {
  if (counts.truncated == 0) return;
  log::warn(
      "{} of {} requests are longer than the model reads ({} tokens), the first one of {}: the beginning of their "
      "context was left out, as lm_eval does it",
      counts.truncated, counts.requests, encoder.max_length(), tasks.name(counts.truncated_task));
}

void warn_of_stride(const tasks::TaskSet& tasks, const RequestEncoder& encoder) {
  for (int64_t t = 0; t < tasks.num_tasks(); ++t)
    if (tasks.stride(t) >= encoder.max_length())
      log::warn(
          "{}: its stride is {} tokens and the model reads {}, so its windows do not overlap; write a task with a "
          "smaller athanor.stride",
          tasks.name(t), tasks.stride(t), encoder.max_length());
}

Json lead(LoadedModel& model, const tasks::TaskSet& tasks, const EvaluationSettings& settings, const fs::path& out,
          const std::string& identity, bool with_samples) {
  const auto began = std::chrono::steady_clock::now();
  TextBeginning beginning = beginning_of_texts(model);
  tell_beginning(model, beginning.around);
  const RequestEncoder encoder(*model.tokenizer, std::move(beginning), model.config.text_positions(),
                               model.source.tokenizer.string());
  tasks::TaskScores scores(tasks);
  std::optional<AnswersJournal> journal;
  std::optional<Samples> samples;
  warn_of_stride(tasks, encoder);
  if (out.empty()) log::info("without --out the results are printed only, and an interrupted evaluation begins again");
  if (!out.empty()) {
    fs::create_directories(fs::absolute(out).parent_path());
    journal.emplace(out.string() + ".unfinished", identity);
    if (with_samples) samples.emplace(out, tasks);
  }
  EvaluationInput input;
  input.tasks = &tasks;
  input.encoder = &encoder;
  input.journal = journal ? &*journal : nullptr;
  input.answered = [&](const tasks::TaskDocument& document, const Answers& answers) {
    scores.add(document, answers);
    if (samples) samples->add(document, scores.sample(document, answers));
  };
  const EvaluationCounts counts = evaluate(*model.state, input, settings.options);
  warn_of_truncation(counts, tasks, encoder);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  const EvaluatedModel evaluated{model.source.folder.string(), model.config, model.source.step, model.source.tokens};
  Json results = results_document(scores.results(), evaluated, settings, counts, identity, seconds);
  results["athanor"]["chance"] = chances_of(tasks);
  if (!out.empty()) {
    write_file_atomically(out, results.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
    journal->remove();
    log::info("results written to {}", out.string());
  }
  return results;
}

}  // namespace

ResultsPlace plan_results(const std::string& out, size_t num_models, bool samples) {
  ResultsPlace place{out, num_models > 1, samples};
  if (out.empty()) return place;
  if (num_models == 1) place.is_folder = fs::is_directory(out);
  ATHANOR_CHECK(!place.is_folder || !fs::is_regular_file(out),
                "--out {} is a file, and the results of {} models need a folder; name a folder", out, num_models);
  return place;
}

std::optional<NamedResults> evaluate_model(const fs::path& path, comm::World& world, const LoadOptions& load,
                                           const tasks::TaskSet* tasks, const EvaluationSettings& settings,
                                           const ResultsPlace& place) {
  std::optional<ModelSource> source;
  std::optional<Json> finished;
  std::string identity;
  fs::path out;
  if (world.rank() == 0) {
    source = open_or_pass_over(path, place);
  }
  if (!broadcast_text(world.all(), world.rank() == 0 && !source ? "passed over" : "").empty()) return std::nullopt;
  if (world.rank() == 0) {
    identity = evaluation_identity(*source, *tasks, settings);
    out = output_of(*source, place, identity);
    finished = finished_results(out, identity);
    if (finished) log::info("{} has the results already", out.string());
    if (finished && place.samples && !fs::exists(samples_of(out)))
      log::warn("{} was computed without --samples; remove it to compute it again with them", out.string());
    if (!finished && place.samples && !out.empty()) check_samples_folder(samples_of(out));
  }
  if (!broadcast_text(world.all(), finished ? "finished" : "").empty())
    return finished ? NamedResults{step_name(*source), std::move(*finished)} : NamedResults{};
  LoadedModel model = load_model(path, world, load, std::move(source));
  EvaluationSettings known = settings;
  known.data_ranks = model.state->mesh.layout().data();
  if (world.rank() != 0) {
    evaluate(*model.state, {}, settings.options);
    return std::nullopt;
  }
  return NamedResults{step_name(model.source), lead(model, *tasks, known, out, identity, place.samples)};
}

Json chances_of(const tasks::TaskSet& tasks) {
  Json chances = Json::object();
  for (int64_t t = 0; t < tasks.num_tasks(); ++t) {
    if (const auto chance = tasks.chance(t)) chances[tasks.name(t)] = *chance;
  }
  for (const auto& group : tasks.groups()) {
    if (group.chance) chances[group.name] = *group.chance;
  }
  return chances;
}

}  // namespace athanor::inline eval
