#pragma once
// What a run writes that it can go on from, what is known of it when the run ends, and how the attempt then ends.

#include <functional>
#include <optional>

#include "train/run_history.h"
#include "train/train_state.h"
#include "train/whereabouts.h"

namespace athanor {

/// Collective over the world where not said otherwise. A disk that is full costs what was to be written, never the run:
/// it is logged and goes into the run's history, and every rank knows.
class RunSaves {
 public:
  /// All of them outlive this.
  RunSaves(TrainState& state, Mesh& mesh, Whereabouts& at);

  /// A full checkpoint. @throws CommError.
  void save_checkpoint();
  /// A model-only folder in the layout of `transformers`.
  void save_model();
  /// A run that is complete is begun again to have what its end could not write.
  void write_missing_model();

  /// Of the newest that the run can go on from.
  int64_t saved_step() const { return saved_step_; }
  bool is_saved() const { return saved_step_ == state_.step; }
  /// A line of the run's history, once for all ranks. Not collective.
  void tell(const char* event, nlohmann::ordered_json more = nlohmann::ordered_json::object());

  /// Say how the attempt ends, in the log and in the run's history or last words; the exit code. Not collective.
  int end_complete();
  int end_stopped(int signal_number);

 private:
  struct Ending {
    int exit_code;
    std::string text;
  };
  bool try_to_save(const char* kind, const std::function<std::filesystem::path()>& save);
  Ending stopped(int signal_number) const;
  Ending complete() const;
  int finish(const Ending& ending);

  TrainState& state_;
  Mesh& mesh_;
  Whereabouts& at_;
  std::optional<EventLog> history_;                    // of the first rank
  bool checkpoint_saved_ = true, model_saved_ = true;  // the last that was to be
  int64_t first_step_, saved_step_;
};

}  // namespace athanor
