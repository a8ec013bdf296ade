#pragma once
// Saves of a run (checkpoints and models), and the end of an attempt.

#include <functional>
#include <optional>
#include <utility>

#include "base/error.h"
#include "record/run_history.h"
#include "saves/background_save.h"
#include "saves/requests.h"
#include "train/run_context.h"
#include "train/train_state.h"
#include "train/unreadable_data.h"

namespace athanor::inline saves {

/// The functions that write files are collective over the world. If a file cannot be written (a full disk), this costs
/// the checkpoint or model, never the run: the failure is logged and recorded in the run's history, and every rank
/// learns of it. So do values that are not finite, which no start would load: the next step is refused because of them,
/// and if there is none, the run ends with code 76.
class RunSaves {
 public:
  /// The first three arguments must outlive this object.
  /// @param saved_step  the step that the run can continue from as it is on disk: that of the state, unless it is a
  /// local
  ///                    checkpoint.
  /// @param local  where local checkpoints are written; none: there are none.
  /// @param old_local  where local checkpoints were on this node, if they are no longer written there: removed when
  ///                   they serve no more.
  RunSaves(TrainState& state, Mesh& mesh, RunContext& at, int64_t saved_step, std::optional<LocalPlace> local = {},
           std::vector<LocalStore> old_local = {});
  RunSaves(const RunSaves&) = delete;
  RunSaves& operator=(const RunSaves&) = delete;

  /// Why a full checkpoint is saved: by its step it may be skipped (checkpoint.if_still_saving), while a user's or a
  /// clock's is only put off.
  enum class Why { kDue, kAsked, kLast };
  /// Saves a full checkpoint of the state's step, or starts to, with checkpoint.async, unless one was started at this
  /// step; the last one is on disk when this returns, or has failed. @throws CommError.
  void save_checkpoint(Why why);
  /// Starts a local checkpoint of the state's step (local_save.h), unless another checkpoint is being written. A
  /// failure costs that checkpoint, and is logged once until one succeeds.
  void save_local();
  /// To be called before the state changes: what is still copied of it for a checkpoint is copied first.
  void before_update() const {
    if (background_) background_->before_update();
  }
  /// To be called once after each step. Notes what has become of a checkpoint that was being written, and starts one
  /// of this step if one was put off.
  /// @param any_writes  whether any rank is still writing; the same on all ranks.
  void look_after(bool any_writes);
  /// Makes the thread that writes in the background log what it does; null: no more.
  void record_spans(const std::shared_ptr<SpanLog>& spans) {
    if (background_) background_->record_spans(spans);
  }
  /// Returns whether this rank is writing a checkpoint in the background.
  bool is_writing() const { return background_ && background_->is_writing(); }
  /// Saves what a signal or the clock asks for when there is no new step, unless this one is saved.
  void save_without_a_step(const Requests& asked);
  /// Waits until the checkpoint that is being written, if any, is on disk or has failed.
  void finish();
  /// Saves a model-only checkpoint of the state's step: a folder that `transformers` loads. @throws CommError.
  void save_model();
  /// Saves the model of the state's step unless its folder exists: for a complete run that is started again because its
  /// end could not write it.
  void write_missing_model();

  /// Returns the number of full checkpoints that were started.
  int64_t num_started() const { return num_started_; }
  /// Returns what the last full checkpoint took that is on disk, once.
  struct Took {
    double stopped_s, seconds;
  };
  std::optional<Took> take_times() { return std::exchange(took_, std::nullopt); }
  /// Returns whether a full checkpoint in the run's folder was started whose outcome is not known yet.
  bool pending() const { return background_ && background_->pending(SaveTo::kRunFolder); }
  /// Returns the step of the newest save that the run can continue from; before the first save of this attempt, the
  /// step that the attempt began with. A model counts only if checkpoint.interval is 0.
  int64_t saved_step() const { return saved_step_; }
  bool is_saved() const { return saved_step_ == state_.position.step; }
  /// Adds a line to the run's history (run_history.h): the first rank writes it, the others do nothing.
  void tell(const char* event, nlohmann::ordered_json more = nlohmann::ordered_json::object());

  /// Record how the attempt ends, in the log and in the run's history or last words, and return the exit code, which is
  /// the same on all ranks. They send nothing.
  int end_complete();
  /// @param limit  the limit of time, if that is what stopped the run.
  int end_stopped(const Requests& asked, const std::string& limit);
  /// @param reason  the rule with its numbers; read on the first rank.
  int end_by_rule(const std::string& reason);
  /// Data can no longer be read, and all ranks know it: saves what there is. Collective, unlike the others. @throws
  /// Error with exit code 74 on the rank that could not read.
  int end_unreadable(const UnreadableData& failure);
  /// The evaluation of the state's step has failed, and all ranks know it: as end_unreadable, with exit code 80.
  int end_unevaluated(const UnreadableData& failure);
  /// A source has no more instances for the next step: saves what there is. Collective, unlike the others.
  int end_used_up(const std::string& excess);

 private:
  struct Ending {
    int exit_code;
    std::string text;
  };
  bool try_to_save(const char* kind, const std::function<std::filesystem::path()>& save);
  Ending stopped(const Requests& asked, const std::string& limit) const;
  Ending stopped_by_rule(const std::string& reason) const;
  Ending complete() const;
  int finish(const Ending& ending);
  void save_what_is_done();
  std::string what_is_kept(const std::string& again) const;

  void skip();
  void note_local(const SaveOutcome& outcome);
  void settle_local_place();
  void remove_local();
  void start_in_background();
  void take_outcome();
  void note_saved(const SaveOutcome& outcome);
  void note_failure(const char* kind, int64_t step, const Error& error);
  Ending not_finite() const;

  TrainState& state_;
  Mesh& mesh_;
  RunContext& at_;
  std::optional<EventLog> history_;  // on the first rank only
  std::optional<BackgroundSave> background_;
  std::optional<Took> took_;
  std::optional<LocalPlace> local_;
  std::vector<LocalStore> old_local_;
  int64_t last_local_step_ = -1;  // the newest local checkpoint; -1: none was written
  bool local_fails_ = false;      // the last one was not written
  bool put_off_ = false;          // a checkpoint that was asked for
  int64_t num_started_ = 0, writing_step_ = 0;
  bool checkpoint_saved_ = true, model_saved_ = true;  // whether the last save of each kind succeeded
  std::string not_finite_, tensor_;                    // what a save met that is not finite, and has met since; ""
  std::string remedy_ = "free some space in";          // by the last failure
  int64_t first_step_, saved_step_;
};

}  // namespace athanor::inline saves
