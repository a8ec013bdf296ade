#include "saves/resume_point.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"
#include "checkpoint/hf_import.h"
#include "checkpoint/hf_tokenizer.h"
#include "checkpoint/rotation.h"
#include "config/toml_reader.h"
#include "record/run_folder.h"
#include "record/run_history.h"
#include "saves/branch.h"
#include "saves/path_in_run.h"

namespace athanor::inline saves {
namespace fs = std::filesystem;
namespace {

// The contents of the folder.
struct Contents {
  std::vector<StepFolder> full, models;  // newest first
  std::string remains;                   // the name of a file that only a run leaves; "" if there is none
  RunHistory history;

  bool saved() const { return !full.empty() || !models.empty(); }
  bool any() const { return saved() || !remains.empty() || history.known; }
};

// A configuration alone is no sign of a run: people put theirs there. Empty folders are no sign either.
std::string find_remains(const RunFolder& folder) {
  const fs::path tokenizer = find_tokenizer_file(folder.root);
  for (const fs::path& path : {folder.metrics(), tokenizer, folder.log_file(), folder.last_words(), folder.dispatch()})
    if (!path.empty() && fs::exists(path)) return path.lexically_relative(folder.root).string();
  if (!fs::is_directory(folder.root)) return "";
  for (const fs::path& parent : {folder.root, folder.checkpoints(), folder.models(), folder.configs()}) {
    if (!fs::is_directory(parent)) continue;
    for (const auto& entry : fs::directory_iterator(parent)) {
      const std::string name = entry.path().filename().string();
      for (const char* kept : {"metrics-*.jsonl", "abandoned-*", "not-finite-*", "config-*.toml"})
        if (matches_wildcard(kept, name)) return entry.path().lexically_relative(folder.root).string();
    }
  }
  return "";
}

Contents look_into(const RunFolder& folder) {
  return {list_recoverable(folder.checkpoints()), list_recoverable(folder.models()), find_remains(folder),
          read_history(folder.events())};
}

bool is_full(const fs::path& path) { return fs::exists(path / kManifestName); }

std::string why_no_checkpoint(const fs::path& path) {
  if (is_full(path) || is_hf_folder(path)) return "";
  return fmt::format(
      "checkpoint.resume: {} is neither a checkpoint (manifest.json) nor a model folder (config.json); expected "
      "\"auto\", \"never\" or one of those",
      path.string());
}

void require_checkpoint(const fs::path& path) {
  const std::string why = why_no_checkpoint(path);
  ATHANOR_CHECK(why.empty(), "{}", why);
}

// Lists checkpoints that are newer than the place, which belong to another branch of the run. If the place is a model,
// the full checkpoint of the same step belongs to them too: it has the moments that are not wanted.
std::vector<fs::path> newer_than(const Contents& held, const fs::path& path, int64_t step) {
  std::vector<fs::path> newer;
  // Adds it under the name that it will have when leftovers have been cleaned.
  const auto add = [&](const StepFolder& each) {
    newer.push_back(each.path.parent_path() / step_folder_name(each.step));
  };
  for (const auto& each : held.full)
    if (each.step > step || (each.step == step && !is_full(path))) add(each);
  for (const auto& each : held.models)
    if (each.step > step) add(each);
  return newer;
}

// "checkpoint.resume = RUN" does not name a branch.
std::string asked_place(const RunFolder& folder, const std::string& how) {
  const std::string place = path_in_run(folder.root, how);
  ATHANOR_CHECK(place != ".",
                "checkpoint.resume ({}) is the run's own folder; name one of its checkpoints to go back to (as {}), or "
                "\"auto\" to continue from the newest",
                how, (folder.models() / step_folder_name(1000)).string());
  return place;
}

void go_back(const RunConfig& config, const Contents& held, const std::string& place, ResumePoint& begin) {
  const fs::path path = fs::path(config.train.run_dir) / place;
  require_checkpoint(path);
  ATHANOR_CHECK(is_own_step(place),
                "checkpoint.resume: {} is in the run's own folder but is not one of {} or {} from which the run "
                "continues: the checkpoints and metrics of the steps before it belong to another branch; to continue "
                "from it, name another train.run_dir",
                path.string(), (fs::path("checkpoints") / step_folder_name(500)).string(),
                (fs::path("models") / step_folder_name(500)).string());
  begin.from = ResumePoint::From::kPath;
  begin.path = path;
  begin.asked = place;
  begin.anew = true;
  begin.step = *step_of_folder_name(path.filename().string());
  begin.abandoned = newer_than(held, path, begin.step);
}

// Why a run that has nothing in its folder to continue from may not begin at step 0; "" if it may.
std::string why_not_at_nothing(const RunFolder& folder, const Contents& held) {
  if (!held.any()) return "";
  const std::string root = folder.root.string(), instead = "move it away to start again, or name another train.run_dir";
  if (held.history.saved)
    return fmt::format("{} belongs to a run whose checkpoints are gone ({} and {} have none): put one back, {}", root,
                       folder.checkpoints().string(), folder.models().string(), instead);
  if (held.history.complete)
    return fmt::format(
        "{} contains a run that is complete and kept nothing to continue from (checkpoint.interval and "
        "checkpoint.model_interval were 0): {}",
        root, instead);
  if (held.history.known) return "";
  return fmt::format(
      "{} holds {} of a run, but no history (events.jsonl) and no checkpoint to continue from: put one back, {}", root,
      held.remains, instead);
}

void go_on(const RunConfig& config, const RunFolder& folder, const Contents& held, ResumePoint& begin) {
  begin.branch = held.history.branch;
  if (!held.saved()) {
    begin.refusal = why_not_at_nothing(folder, held);
    return;
  }
  // Full checkpoints may be old: of a time before they were turned off, or from before the run went back.
  const int64_t back_to = step_of_folder_name(fs::path(held.history.asked).filename().string()).value_or(-1);
  const bool full_lag = !held.full.empty() && (config.checkpoint.interval.is_off() || held.full.front().step < back_to);
  const bool models_lead = full_lag && !held.models.empty() && held.models.front().step > held.full.front().step;
  if (!held.full.empty() && !models_lead) {
    begin.from = ResumePoint::From::kNewest;
    begin.step = held.full.front().step;
    return;
  }
  begin.from = ResumePoint::From::kPath;
  begin.path = held.models.front().path;
  // A local checkpoint has moments, so an older one is better than a model.
  begin.step = config.checkpoint.interval.is_off() ? held.models.front().step
               : held.full.empty()                 ? -1
                                                   : held.full.front().step;
  if (held.models.size() > 1) begin.older = held.models[1].path;
  begin.notes.push_back(
      fmt::format("{} has {}: continuing from the newest model, with FRESH MOMENTS; if that is not intended, stop the "
                  "run, put a full checkpoint into {}, or name another train.run_dir",
                  folder.root.string(), models_lead ? "no full checkpoint as new as its models" : "no full checkpoint",
                  folder.checkpoints().string()));
}

// If the run began elsewhere, that place may no longer exist. A place that does not exist and was never named is a
// mistake.
bool names_what_it_did(const RunFolder& folder, const std::string& how) {
  try {
    return load_run_config(folder.config()).checkpoint.resume == how;
  } catch (const Error&) {
    return false;
  }
}

std::string passed_over(const std::string& how) {
  return fmt::format(
      "checkpoint.resume ({}) was passed over: this run has continued since; to branch off there, name another "
      "train.run_dir",
      how);
}

void note_passed_over(ResumePoint& begin, const std::string& note) {
  begin.notes.push_back(note);
  begin.notes_of_local.push_back(note);
}

// Where a run begins that has saved nothing into its folder yet. If its nodes have local checkpoints, it continues from
// these, as it would from its own checkpoints.
void begin_elsewhere(const RunConfig& config, const RunFolder& folder, const Contents& held, ResumePoint& begin) {
  const std::string& how = config.checkpoint.resume;
  const bool again = held.history.known && names_what_it_did(folder, how);
  if (!again) require_checkpoint(how);
  begin.refusal = why_no_checkpoint(how);
  if (begin.refusal.empty()) begin.refusal = why_not_at_nothing(folder, held);
  if (again) begin.branch = held.history.branch;
  if (held.history.known) begin.branch_there_is = held.history.branch;
  begin.from = ResumePoint::From::kPath;
  begin.path = how;
  begin.anew = true;
  begin.notes_of_local.push_back(passed_over(how));
}

// A job that is queued again gives the same command: it goes back once, and then continues from what it saved. A
// different branch from the same place is a new request.
void answer_request(const RunConfig& config, const RunFolder& folder, const Contents& held, const std::string& place,
                    ResumePoint& begin) {
  if (held.history.asked != place) return go_back(config, held, place, begin);
  if (!held.history.saved_since_asked) {
    if (changes_of_branch(config).empty()) begin.branch = held.history.branch;
    return go_back(config, held, place, begin);
  }
  if (const auto changes = changes_of_branch(config); !changes.empty()) {
    go_back(config, held, place, begin);
    begin.notes.push_back(
        fmt::format("going back to {} once more, for another branch: {}", begin.path.string(), join(changes)));
    return;
  }
  go_on(config, folder, held, begin);
  note_passed_over(
      begin,
      fmt::format("checkpoint.resume ({}) was passed over: this run went back there before with the same "
                  "configuration, and has saved since; to go back once more, change what the new branch is to differ "
                  "in (optimizer.lr, for example), or begin it in another train.run_dir",
                  config.checkpoint.resume));
}

}  // namespace

ResumePoint plan_resume_point(const RunConfig& config) {
  const RunFolder folder{config.train.run_dir};
  const Contents held = look_into(folder);
  const std::string& how = config.checkpoint.resume;
  ResumePoint begin;
  begin.attempt = begin.branch = held.history.attempts + 1;
  if (how == "never") {
    ATHANOR_CHECK(
        !held.any(),
        "{} holds a run already and checkpoint.resume is \"never\"; name another train.run_dir, or resume with "
        "\"auto\"",
        folder.root.string());
    return begin;
  }
  const std::string& asked = held.history.asked;
  if (how == "auto") {
    // The run has gone back, and was stopped before anything was saved: the request still holds.
    const fs::path path = folder.root / asked;
    begin.branch = held.history.branch;
    if (is_own_step(asked) && !held.history.saved_since_asked && (is_full(path) || is_hf_folder(path)))
      go_back(config, held, asked, begin);
    else
      go_on(config, folder, held, begin);
    return begin;
  }
  const std::string place = asked_place(folder, how);
  if (!place.empty()) {
    answer_request(config, folder, held, place, begin);
    return begin;
  }
  if (held.saved()) {
    if (!names_what_it_did(folder, how)) require_checkpoint(how);
    go_on(config, folder, held, begin);
    note_passed_over(begin, passed_over(how));
    return begin;
  }
  begin_elsewhere(config, folder, held, begin);
  return begin;
}

void ResumePoint::require_allowed() const { ATHANOR_CHECK_CHECKPOINT(refusal.empty(), "{}", refusal); }

std::string ResumePoint::to_text() const {
  nlohmann::json paths = nlohmann::json::array();
  for (const auto& each : abandoned) paths.push_back(each.string());
  return nlohmann::json{{"from", static_cast<int>(from)},
                        {"path", path.string()},
                        {"asked", asked},
                        {"abandoned", paths},
                        {"older", older.string()},
                        {"anew", anew},
                        {"attempt", attempt},
                        {"notes", notes},
                        {"notes_of_local", notes_of_local},
                        {"refusal", refusal},
                        {"branch_there_is", branch_there_is},
                        {"step", step},
                        {"branch", branch}}
      .dump();
}

ResumePoint ResumePoint::from_text(const std::string& text) {
  const auto json = nlohmann::json::parse(text);
  ResumePoint begin;
  begin.from = static_cast<From>(json.at("from").get<int>());
  begin.path = json.at("path").get<std::string>();
  begin.asked = json.at("asked");
  for (const auto& each : json.at("abandoned")) begin.abandoned.emplace_back(each.get<std::string>());
  begin.older = json.at("older").get<std::string>();
  begin.anew = json.at("anew");
  begin.attempt = json.at("attempt");
  begin.notes = json.at("notes");
  begin.notes_of_local = json.at("notes_of_local");
  begin.refusal = json.at("refusal");
  begin.branch_there_is = json.at("branch_there_is");
  begin.step = json.at("step");
  begin.branch = json.at("branch");
  return begin;
}

}  // namespace athanor::inline saves
