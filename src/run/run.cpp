#include "run/run.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <set>
#include <variant>

#include "base/exit_codes.h"
#include "base/fault.h"
#include "base/launcher_hold.h"
#include "base/log.h"
#include "base/signals.h"
#include "base/text.h"
#include "base/wall_clock.h"
#include "config/due.h"
#include "memory/out_of_memory.h"
#include "metrics/metrics_log.h"
#include "metrics/step_lines.h"
#include "parallel/share.h"
#include "record/run_folder.h"
#include "run/background_verification.h"
#include "run/run_gate.h"
#include "run/run_report.h"
#include "run/stage_batches.h"
#include "run/start.h"
#include "run/step_runner.h"
#include "run/validation.h"
#include "saves/requests.h"
#include "saves/run_saves.h"
#include "train/unreadable_data.h"
#include "watch/probe.h"

namespace athanor::inline run {
namespace {

using Clock = std::chrono::steady_clock;

// How a run ends, or continues from its newest checkpoint: with an exit code, or going back.
using Ended = std::variant<int, RollBack>;

class Run {
 public:
  Run(StartedRun started, RunContext& at, const SignalGuard& signals, RunClock* clock, LauncherHold& hold,
      RunEvaluation* evaluation)
      : signals_(signals), clock_(clock), hold_(hold), lock_(std::move(started.lock)), mesh_(std::move(started.mesh)),
        state_(std::move(started.state)), batches_(*state_, *mesh_, std::move(started.data.stages)),
        validation_(*state_, *mesh_), at_(at), first_step_(state_->position.step),
        saves_(*state_, *mesh_, at, started.saved_step, std::move(started.local), std::move(started.old_local)),
        gate_(evaluation, *state_, saves_, at, signals), runner_(*state_, *mesh_, at, started, batches_, saves_),
        verification_(std::move(started.data.unverified)) {
    if (!mesh_->is_first()) return;
    const auto& config = state_->config;
    metrics_.emplace(config.train.run_dir, config.metrics.tensorboard, first_step_,
                     hyperparameters_of(state_->run_config));
    lines_.emplace(config.metrics.log_interval, first_step_, state_->run_config.train.steps);
  }

  Ended loop() {
    std::optional<UnreadableData> unreadable;
    std::optional<SourceUsedUp> used_up;
    try {
      return steps();
    } catch (const UnreadableData& failure) {
      unreadable = failure;
    } catch (const SourceUsedUp& end) {
      used_up = end;
    } catch (const c10::OutOfMemoryError& error) {  // what the step held is free again by now
      throw Error(describe_out_of_memory(*state_, at_.step, error), exit_code::kMemory);
    }
    if (used_up) return saves_.end_used_up(used_up->text);
    return evaluation_failed_ ? saves_.end_unevaluated(*unreadable) : saves_.end_unreadable(*unreadable);
  }

 private:
  Ended steps() {
    if (const auto code = begin()) return *code;
    while (!is_complete()) {
      if (batches_.must_enter()) enter_stage();
      at_.set_step(state_->position.step + 1);
      TakenStep step = runner_.take();
      if (step.roll_back) return *std::move(step.roll_back);
      Requests asked = requests();
      saves_.look_after(asked.saving);
      note_saves();
      if (asked.probe) probe("asked");
      if (step.metrics) after_step(*step.metrics, asked);
      if (!step.metrics) after_skip(asked);
      if (roll_back_) return *std::move(roll_back_);
      if (const auto code = why_to_end(asked)) return *code;
    }
    return end_complete();
  }

  // What an attempt does before its first step. Returns the exit code of one that has none.
  std::optional<int> begin() {
    at_.phases.enter(board::Phase::kStart);
    if (state_->config.integrity.probe && world().size() > 1) probe("start");
    const Requests early = requests();  // asked for during the start
    if (!saves_.is_saved() && (early.stop() || is_complete())) saves_.save_checkpoint(RunSaves::Why::kLast);
    if (early.stop()) return end_stopped(early);
    if (is_complete()) saves_.write_missing_model();
    if (!is_complete() && first_step_ > 0) saves_.save_local();  // a node that was lost has no copies yet
    const bool is_due_on_start = !is_complete() && gate_.is_due_on_start();
    return is_due_on_start || gate_.is_owed(is_complete()) ? evaluate_before_steps() : std::nullopt;
  }

  std::optional<int> evaluate_before_steps() {
    const EvaluationScores scores = evaluate();
    if (metrics_) metrics_->write_start(scores, first_step_);
    const Requests asked = requests();
    if (asked.stop()) return end_stopped(asked);  // nothing was learnt: the next attempt begins here again
    return why_to_end(asked);
  }

  // Everything that follows a step that was applied, in this order.
  void after_step(StepMetrics& metrics, Requests& asked) {
    const auto& config = state_->config;
    const int64_t step = state_->position.step;
    const bool validates = !config.train.validation_interval.is_off();
    if (is_due(step, config.train.validation_interval.count) || (is_complete() && validates)) validate(metrics);
    if (roll_back_) return;  // nothing of this step is shown or saved
    if (gate_.is_due(is_complete()) && !asked.stop()) metrics.evaluation = evaluate();
    if (gate_.was_interrupted()) asked = requests();
    show(metrics);
    save_what_is_due(asked);
    note_saves();
    runner_.end_step();
    fault_point("train.after_step");
  }

  void save_what_is_due(const Requests& asked) {
    const auto& config = state_->config.checkpoint;
    const int64_t step = state_->position.step;
    const bool ends = is_complete() || asked.stop() || gate_.stops();
    const bool has_checkpoints = !config.interval.is_off(), by_interval = is_due(step, config.interval.count);
    if (is_due(step, config.model_interval) || (ends && ends_with_a_model()) || (asked.save && !has_checkpoints))
      saves_.save_model();
    if (has_checkpoints && (by_interval || ends || asked.save))
      saves_.save_checkpoint(ends ? RunSaves::Why::kLast : by_interval ? RunSaves::Why::kDue : RunSaves::Why::kAsked);
    else if (is_due(step, config.local_interval))
      saves_.save_local();
  }

  // The next batch takes the place of one whose step was not applied.
  void after_skip(const Requests& asked) {
    for (const auto& line : batches_.supply().short_by_skips) log::warn_on_all("{}", line);
    saves_.save_without_a_step(asked);
  }

  std::optional<int> why_to_end(const Requests& asked) {
    if (asked.stop_signal != 0 || (asked.time_is_up && !is_complete())) return end_stopped(asked);
    if (gate_.stops()) return saves_.end_by_rule(gate_.reason());
    if (unreadable_) throw UnreadableData(*unreadable_);
    return std::nullopt;
  }

  void probe(const std::string& why) {
    probe_and_record(
        *mesh_, at_,
        {state_->config.train.run_dir, state_->model.device(), state_->position.step, runner_.shares_cores()}, why);
  }

  comm::Communicator& world() const { return mesh_->group(GroupKind::kWorld); }
  bool is_complete() const { return state_->position.step >= state_->run_config.train.steps; }

  // The model of the last step, and of one at which a rule stops, is written at any interval; after a signal it is
  // written only if there is no full checkpoint, so that little is lost.
  bool ends_with_a_model() const {
    const auto& kept = state_->config.checkpoint;
    return kept.model_interval > 0 && (is_complete() || gate_.stops() || kept.interval.is_off());
  }

  void enter_stage() {
    batches_.enter();
    validation_.enter_stage();
    runner_.enter_stage();
  }

  // A signal that has reached one rank, or data that one rank cannot read or finds damaged, ends the run of all ranks
  // after the same step. The next batch is known by now, since batches are read ahead.
  Requests requests() {
    const double since_s = seconds_since(std::exchange(agreed_, Clock::now()));
    const bool after_a_step = state_->position.step > first_step_;
    if (clock_ && after_a_step) clock_->step_took(since_s, saves_.pending());
    longest_step_s_ = std::max(longest_step_s_, since_s);
    std::exception_ptr failure = batches_.failure_of_next();
    if (!failure) failure = verification_.failure();
    const Requests asked = agree_on_requests(world(), signals_, clock_, saves_.is_writing(), failure);
    if (asked.cannot_read) unreadable_.emplace(*asked.cannot_read, describe_read_error(failure));
    if (asked.stop()) signals_.agree_on_end();
    if (asked.stop_signal != 0) {
      hold_.keep();
    } else if (after_a_step) {
      hold_.arm(2 * longest_step_s_ + 10, RunFolder{state_->config.train.run_dir}.last_words());
    }
    return asked;
  }

  // Tells the clock which saves have begun and which are on disk, whatever started or finished them.
  void note_saves() {
    const bool began = std::exchange(saves_noted_, saves_.num_started()) < saves_.num_started();
    if (clock_ && began) clock_->save_began();
    const auto took = saves_.take_times();
    if (clock_ && took) clock_->saved(took->stopped_s, took->seconds);
  }

  int end_complete() {
    lines_.reset();
    const int code = saves_.end_complete();
    runner_.tell_at_end(code == exit_code::kComplete);
    if (code != exit_code::kComplete || !metrics_) return code;
    for (const auto& line : report_.lines(state_->run_config, state_->position.step)) log::info("{}", line);
    return code;
  }

  int end_stopped(const Requests& asked) { return saves_.end_stopped(asked, clock_ ? clock_->limit() : ""); }

  void validate(StepMetrics& metrics) {
    at_.enter("validate", board::Phase::kValidate);
    at::set_num_threads(runner_.kept_threads());
    try {
      const auto found = validation_.validate(batches_.data(), metrics);
      if (found) refuse_weights(found->loss, found->source);
    } catch (const UnreadableData& failure) {  // on all ranks: the step is shown and saved before the run ends
      unreadable_ = failure;
    }
  }

  EvaluationScores evaluate() {
    at::set_num_threads(runner_.kept_threads());
    try {
      return gate_.evaluate();
    } catch (const UnreadableData& failure) {  // on all ranks, as in validate()
      unreadable_ = failure;
      evaluation_failed_ = true;
      return {};
    }
  }

  // The checkpoint that is being written may be the one to go back to.
  void refuse_weights(double loss, const std::string& source) {
    saves_.finish();
    at_.phase = "validate";
    roll_back_ = runner_.watches().refuse_weights(loss, source, saves_.saved_step());
  }

  void show(const StepMetrics& metrics) {
    if (!metrics_) return;
    lock_->check_held();
    lines_->show(metrics);
    report_.add(metrics);
    metrics_->write(metrics);
  }

  const SignalGuard& signals_;
  RunClock* clock_;  // null on all ranks but the first
  LauncherHold& hold_;
  std::unique_ptr<FolderLock> lock_;  // on the first rank; released when everything else is destroyed
  std::unique_ptr<Mesh> mesh_;
  std::unique_ptr<TrainState> state_;
  StageBatches batches_;
  RunValidation validation_;
  RunContext& at_;
  int64_t first_step_;
  RunSaves saves_;
  RunGate gate_;
  StepRunner runner_;
  BackgroundVerification verification_;
  Clock::time_point agreed_ = Clock::now();   // when the ranks last agreed on requests
  double longest_step_s_ = 0;                 // with what comes between two steps
  int64_t saves_noted_ = 0;                   // those that the clock was told of
  std::optional<UnreadableData> unreadable_;  // ends the run after this step
  bool evaluation_failed_ = false;            // which is what could not be read
  std::optional<RollBack> roll_back_;         // since the weights of this step are refused
  std::optional<MetricsLog> metrics_;         // on the first rank, like the two after it
  std::optional<StepLines> lines_;
  RunReport report_;
};

}  // namespace

int run_training(RunConfig config, comm::World& world, RunContext& context, RunEvaluation* evaluation) {
  LauncherHold hold;
  const SignalGuard signals("finishing the step and saving", config.train.on_sigusr1, config.train.on_sigusr2);
  try {
    std::optional<RunClock> clock;
    if (world.rank() == 0) {
      const std::set<std::string> hosts(world.hosts().begin(), world.hosts().end());
      clock.emplace(config, std::ssize(hosts));
    }
    std::optional<RollBack> back;
    while (true) {
      StartedRun started = start_run(config, world, context, signals, evaluation, back ? &back->ledger : nullptr);
      if (back) started.state->position.spikes.continue_after(back->spikes);
      Ended ended = Run(std::move(started), context, signals, clock ? &*clock : nullptr, hold, evaluation).loop();
      if (const int* code = std::get_if<int>(&ended)) {
        world.all().barrier();  // a launcher that is let go ends all ranks of its host
        return *code;
      }
      back = std::get<RollBack>(std::move(ended));
      if (config.checkpoint.resume == "never") config.checkpoint.resume = "auto";  // the run that is there is this one
    }
  } catch (const StoppedAtStart& stop) {
    log::info("stopped by {} before the first step; nothing was changed: run the same command again",
              signal_name(stop.signal_number));
    return exit_code_of_stop(stop.signal_number);
  }
}

}  // namespace athanor::inline run
