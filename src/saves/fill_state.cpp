#include "saves/fill_state.h"

#include <algorithm>
#include <utility>

#include "arch/width_scaling.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"
#include "checkpoint/hf_import.h"
#include "checkpoint/hf_tokenizer.h"
#include "checkpoint/reader.h"
#include "model/initialize.h"
#include "record/run_folder.h"
#include "saves/checkpointing.h"
#include "saves/local_resume.h"
#include "saves/moment_ages.h"
#include "train/state_pieces.h"

namespace athanor::inline saves {
namespace fs = std::filesystem;
namespace {

// Notes that checkpoint.fresh_groups makes no difference where there is no state to read.
void note_all_fresh(const TrainState& state) {
  const std::string note = idle_fresh_groups(state.config.checkpoint, "all moments begin at zero");
  if (!note.empty()) log::info("{}", note);
}

// Loads a full checkpoint, or a model-only one whose moments start fresh.
void resume_from_path(TrainState& state, const fs::path& path) {
  if (fs::exists(path / kManifestName)) {
    std::optional<CheckpointReader> checkpoint;
    const Team team = team_of(state.model.mesh);
    team.on_all([&] { checkpoint = CheckpointReader::open(path, team.worked); });
    load_checkpoint(state, *checkpoint, Chosen::kByName);
    log::info("resumed from {} at step {}", path.string(), state.position.step);
    return;
  }
  load_model_weights(state, path);
  load_progress(state, path);
  log::info("restarted from the model in {} at step {}, with fresh moments", path.string(), state.position.step);
  note_all_fresh(state);
}

// The newest model of a run that keeps no full checkpoint may be damaged; older ones are only used on request.
void resume_from_newest_model(TrainState& state, const ResumePoint& begin) {
  try {
    resume_from_path(state, begin.path);
  } catch (const CheckpointError& error) {
    fail<CheckpointError>("{}; to continue from the model before it, set checkpoint.resume = \"{}\"", error.what(),
                          begin.older.string());
  }
}

FilledState resume_from_newest(TrainState& state, const RunFolder& folder) {
  auto newest = load_newest_checkpoint(state, folder.checkpoints());
  ATHANOR_CHECK_CHECKPOINT(newest.has_value(),
                           "every checkpoint in {} is damaged; move them away to continue from a model alone or to "
                           "start again, or set checkpoint.resume to a folder in {}",
                           folder.checkpoints().string(), folder.models().string());
  const fs::path from = newest->checkpoint.folder();
  log::info("resumed from {} at step {}", from.string(), state.position.step);
  return {from, false, std::move(newest->not_finite)};
}

// A model continues with the tokens that it knows. The same tokenizer may be stored in other bytes, so this is not an
// error.
void warn_of_another_tokenizer(const TrainState& state, const fs::path& from) {
  const fs::path tokenizer = find_tokenizer_file(from);
  if (tokenizer.empty() || hash_file(tokenizer) == state.data.tokenizer_hash) return;
  log::warn_on_all(
      "the data were not prepared with {} but with another file: unless both give the same ids, the model begins in "
      "tokens it does not know; prepare the documents with --tokenizer {}",
      tokenizer.string(), tokenizer.string());
}

// Gives all ranks what the first rank sees: one rank with other weights would spoil the run.
bool begins_with_random_weights(const std::string& from, const Team& team) {
  if (from.empty()) return true;
  return team.from_first([&] { return has_weights(from) ? "stored" : "random"; }) == "random";
}

// Returns true if the weights are random.
bool start_fresh(TrainState& state) {
  const std::string& from = state.config.model.from;
  if (begins_with_random_weights(from, team_of(state.model.mesh))) {
    const int64_t seed = state.config.train.seed;
    initialize_parameters(state.config.model, static_cast<uint64_t>(seed), state.model.parameters,
                          width_ratio(state.config.optimizer, state.config.model));
    if (!from.empty())
      log::info("no weights in {}: random initialisation of its architecture, by train.seed = {}", from, seed);
    return true;
  }
  load_model_weights(state, from);
  log::info("weights from {}", from);
  warn_of_another_tokenizer(state, from);
  return false;
}

// Returns nothing if the local checkpoint cannot be loaded.
std::optional<FilledState> resume_from_local(TrainState& state, ResumePoint& begin, const LocalStart& local) {
  const auto from = load_local(state, local);
  if (!from) return std::nullopt;
  log::info("resumed from the local checkpoint {} at step {}", from->string(), state.position.step);
  // From here on as for a run that continues from its newest checkpoint.
  for (const auto& note : begin.notes_of_local) log::warn_on_all("{}", note);
  ResumePoint newest;
  newest.from = ResumePoint::From::kNewest;
  newest.step = begin.step;
  newest.branch = begin.branch_of_local();
  newest.attempt = begin.attempt;
  begin = std::move(newest);
  return FilledState{*from, false, {}, std::max<int64_t>(0, begin.step)};
}

// A local checkpoint that is older than the newest one in the run's folder is taken if that cannot be.
FilledState resume_from_newest_of_both(TrainState& state, ResumePoint& begin, const LocalStart& local) {
  const RunFolder folder{state.config.train.run_dir};
  FilledState filled = resume_from_newest(state, folder);
  const int64_t step = state.position.step;
  if (step == begin.step || !local.choice || local.choice->step <= step || local.choice->step > begin.step)
    return filled;
  if (auto better = resume_from_local(state, begin, local)) {
    better->not_finite = std::move(filled.not_finite);
    better->saved_step = step;
    return *better;
  }
  return resume_from_newest(state, folder);
}

}  // namespace

FilledState fill_state(TrainState& state, ResumePoint& begin, const LocalStart& local) {
  if (local.choice && local.choice->step > begin.step) {
    if (auto filled = resume_from_local(state, begin, local)) return *filled;
  }
  begin.require_allowed();
  for (const auto& note : begin.notes) log::warn_on_all("{}", note);
  switch (begin.from) {
    case ResumePoint::From::kNewest: return resume_from_newest_of_both(state, begin, local);
    case ResumePoint::From::kPath:
      if (begin.older.empty()) {
        resume_from_path(state, begin.path);
      } else {
        resume_from_newest_model(state, begin);
      }
      return {begin.path};
    case ResumePoint::From::kNothing: break;
  }
  note_all_fresh(state);
  return {{}, start_fresh(state)};
}

}  // namespace athanor::inline saves
