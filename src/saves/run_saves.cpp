#include "saves/run_saves.h"

#include <fmt/core.h>

#include <chrono>
#include <cstring>

#include "base/error.h"
#include "base/exit_codes.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/signals.h"
#include "base/wall_clock.h"
#include "checkpoint/rotation.h"
#include "parallel/share.h"
#include "record/run_folder.h"
#include "saves/checkpointing.h"
#include "saves/local_start.h"

namespace athanor::inline saves {

RunSaves::RunSaves(TrainState& state, Mesh& mesh, RunContext& at, int64_t saved_step, std::optional<LocalPlace> local,
                   std::vector<LocalStore> old_local)
    : state_(state), mesh_(mesh), at_(at), local_(std::move(local)), old_local_(std::move(old_local)),
      first_step_(state.position.step), saved_step_(saved_step) {
  if (mesh.is_first()) history_.emplace(RunFolder{state.config.train.run_dir}.events(), at.attempt);
  const CheckpointConfig& config = state.config.checkpoint;
  if (!config.async || config.interval.is_off()) return;
  background_.emplace(
      state, [this](const SaveOutcome& outcome) { note_saved(outcome); }, local_);
}

namespace {

bool is_not_finite(const Error& error) { return error.exit_code() == exit_code::kNumbersEverywhere; }

// A full disk costs what was to be written, never the run, and so do values that are not finite.
bool costs_a_save(const Error& error) { return is_not_finite(error) || dynamic_cast<const IoError*>(&error); }

}  // namespace

// Every rank throws an error that any rank has found.
bool RunSaves::try_to_save(const char* kind, const std::function<std::filesystem::path()>& save) {
  const auto start = std::chrono::steady_clock::now();
  at_.enter("save", board::Phase::kSave);
  try {
    if (const int injected = fault_errno("train.save")) throw IoError("no room for the " + std::string(kind), injected);
    const std::filesystem::path path = save();
    tell("save", {{"kind", kind}, {"path", path.string()}, {"seconds", seconds_since(start)}});
    not_finite_.clear();
    return true;
  } catch (const Error& error) {
    if (!costs_a_save(error)) throw;
    note_failure(kind, state_.position.step, error);
    return false;
  }
}

void RunSaves::note_failure(const char* kind, int64_t step, const Error& error) {
  const std::string text = error.what();
  const auto* numbers = dynamic_cast<const NumbersError*>(&error);
  const auto* io = dynamic_cast<const IoError*>(&error);
  not_finite_ = is_not_finite(error) ? text : "";
  tensor_ = numbers ? numbers->tensor() : "";
  remedy_ = io && !io->disk_full() ? "look at the file system of" : "free some space in";
  if (mesh_.is_first())
    log::error("the {} of step {} was not written: {}; what was there before is kept and the run continues", kind, step,
               text);
  if (history_) history_->add("save_failed", step, {{"kind", kind}, {"text", text}});
}

// A model must not be on disk before the checkpoint of an earlier step: a run that is killed then would continue from
// the model, with fresh moments, if it has no older checkpoint.
void RunSaves::save_model() {
  finish();
  model_saved_ = try_to_save("model", [&] {
    const auto path = athanor::save_model(state_);
    log::info("model for transformers: {}", path.string());
    return path;
  });
  if (model_saved_ && state_.config.checkpoint.interval.is_off()) saved_step_ = state_.position.step;
}

void RunSaves::save_checkpoint(Why why) {
  if (is_saved()) return;
  if (pending() && writing_step_ == state_.position.step) {  // look_after has started it
    if (why == Why::kLast) finish();
    return;
  }
  if (background_ && background_->pending()) {
    if (why == Why::kAsked) put_off_ = true;
    if (why == Why::kAsked) return;
    if (why == Why::kDue && pending() && state_.config.checkpoint.if_still_saving == IfStillSaving::kSkip)
      return skip();
    finish();
  }
  put_off_ = false;
  ++num_started_;
  if (background_) {
    start_in_background();
    if (why == Why::kLast) finish();
    if (why == Why::kLast && !checkpoint_saved_ && not_finite_.empty()) {
      save_local();
      finish();
    }
    return;
  }
  const auto begin = std::chrono::steady_clock::now();
  checkpoint_saved_ = try_to_save("checkpoint", [&] {
    athanor::save_checkpoint(state_);
    return RunFolder{state_.config.train.run_dir}.checkpoints() / step_folder_name(state_.position.step);
  });
  if (!checkpoint_saved_) return;
  saved_step_ = state_.position.step;
  took_ = {seconds_since(begin), seconds_since(begin)};
}

void RunSaves::skip() {
  log::warn(
      "step {}: no checkpoint, since the one of step {} is still being written; raise checkpoint.interval, or set "
      "checkpoint.if_still_saving to \"wait\"",
      state_.position.step, writing_step_);
  tell("save_skipped", {{"kind", "checkpoint"}, {"writing", writing_step_}});
}

void RunSaves::start_in_background() {
  at_.enter("save", board::Phase::kSave);
  if (const int injected = fault_errno("train.save")) {
    checkpoint_saved_ = false;
    return note_failure("checkpoint", state_.position.step,
                        IoError(std::string("no room: ") + std::strerror(injected), injected));
  }
  background_->start(state_);
  writing_step_ = state_.position.step;
}

// On the first rank, in the thread that has written it: what is on disk is in the history at once.
void RunSaves::note_saved(const SaveOutcome& outcome) {
  const auto path = RunFolder{state_.config.train.run_dir}.checkpoints() / step_folder_name(outcome.step);
  history_->add("save", outcome.step,
                {{"kind", "checkpoint"},
                 {"path", path.string()},
                 {"seconds", outcome.seconds},
                 {"stopped_seconds", outcome.copy_s}});
}

void RunSaves::save_local() {
  if (!local_ || background_->pending()) return;
  background_->start(state_, SaveTo::kNodes);
}

// The first local checkpoint of this start is whole: if it is in a new place, the next start looks there.
void RunSaves::settle_local_place() {
  try {
    if (mesh_.is_first()) record_local(*local_, mesh_.world());
  } catch (const IoError& error) {
    log::warn("{}: a start that follows will not know where the local checkpoints are", error.what());
  }
  for (const LocalStore& old : old_local_) old.remove_all();
  old_local_.clear();
}

void RunSaves::remove_local() {
  if (local_ && local_->nodes.is_leader(mesh_.rank())) local_->store.remove_all();
  for (const LocalStore& old : old_local_) old.remove_all();
}

void RunSaves::note_local(const SaveOutcome& outcome) {
  const bool first = last_local_step_ < 0;
  if (!outcome.failure) {
    last_local_step_ = outcome.step;
    local_fails_ = false;
    if (first) settle_local_place();
    if (first)
      log::info("local checkpoints every {} step(s) in {}, {}; the first took {:.3f} s",
                state_.config.checkpoint.local_interval, local_->store.root().string(),
                local_->nodes.size() == 1 ? "without copies, since there is one node" : "with a copy on the next node",
                outcome.seconds);
    return;
  }
  if (std::exchange(local_fails_, true)) return;
  try {
    std::rethrow_exception(outcome.failure);
  } catch (const CommError&) {
    throw;
  } catch (const Error& error) {
    const std::string text = error.what();
    if (mesh_.is_first())
      log::warn("the local checkpoint of step {} was not written: {}; the run continues, and tries the next one",
                outcome.step, text);
    if (history_) history_->add("save_failed", outcome.step, {{"kind", "local"}, {"text", text}});
  }
}

void RunSaves::take_outcome() {
  background_->wait_together(mesh_.host_group(GroupKind::kWorld));
  const SaveOutcome outcome = background_->take();
  if (outcome.to == SaveTo::kNodes) return note_local(outcome);
  checkpoint_saved_ = !outcome.failure;
  if (checkpoint_saved_) {
    saved_step_ = outcome.step;
    took_ = {outcome.copy_s, outcome.seconds};
    not_finite_.clear();
  }
  if (!outcome.failure) return;
  try {
    std::rethrow_exception(outcome.failure);
  } catch (const Error& error) {
    if (!costs_a_save(error)) throw;
    note_failure("checkpoint", outcome.step, error);
  }
}

void RunSaves::look_after(bool any_writes) {
  if (!background_ || any_writes) return;
  if (background_->pending()) take_outcome();  // else finish() has taken it, for a model
  if (put_off_) save_checkpoint(Why::kAsked);
}

void RunSaves::finish() {
  if (!background_ || !background_->pending()) return;
  at_.enter("save", board::Phase::kSave);
  take_outcome();
}

void RunSaves::save_without_a_step(const Requests& asked) {
  if (is_saved() || !(asked.save || asked.stop())) return;
  const auto& kept = state_.config.checkpoint;
  if (!kept.interval.is_off())
    save_checkpoint(asked.stop() ? Why::kLast : Why::kAsked);
  else if (kept.model_interval > 0)
    save_model();
}

// A run that is complete can be started again to write what its end could not write.
void RunSaves::write_missing_model() {
  const RunFolder folder{state_.config.train.run_dir};
  bool missing = state_.config.checkpoint.model_interval > 0;
  if (mesh_.is_first())
    missing = missing && !std::filesystem::exists(folder.models() / step_folder_name(state_.position.step));
  if (broadcast_text(mesh_.group(GroupKind::kWorld), missing ? "missing" : "") == "missing") save_model();
}

// Adds a line to the run's history, once for all ranks.
void RunSaves::tell(const char* event, nlohmann::ordered_json more) {
  if (history_) history_->add(event, state_.position.step, std::move(more));
}

}  // namespace athanor::inline saves
