#include "train/run.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <set>

#include "arch/width_scaling.h"
#include "base/exit_codes.h"
#include "base/fault.h"
#include "base/launcher_hold.h"
#include "base/log.h"
#include "base/signals.h"
#include "base/text.h"
#include "base/wall_clock.h"
#include "ops/transfer.h"
#include "parallel/share.h"
#include "train/background_verification.h"
#include "train/device_watch.h"
#include "train/layer_statistics.h"
#include "train/metrics_log.h"
#include "train/out_of_memory.h"
#include "train/preflight.h"
#include "train/rank_share.h"
#include "train/recorded_probe.h"
#include "train/rehearsals.h"
#include "train/requests.h"
#include "train/router_metrics.h"
#include "train/run_folder.h"
#include "train/run_gate.h"
#include "train/run_report.h"
#include "train/run_saves.h"
#include "train/run_validation.h"
#include "train/stage_batches.h"
#include "train/start.h"
#include "train/step_lines.h"
#include "train/step_summary.h"
#include "train/step_trace.h"
#include "train/step_watches.h"
#include "train/thread_trial.h"
#include "train/train_step.h"
#include "train/unreadable_data.h"

namespace athanor {
namespace {

using Clock = std::chrono::steady_clock;

Warning warning_of(const std::string& action) {
  return action == "stop" ? Warning::kStop : action == "save" ? Warning::kSave : Warning::kIgnore;
}

bool due(int64_t step, int64_t interval) { return interval > 0 && step % interval == 0; }

class Run {
 public:
  Run(StartedRun started, RunContext& at, const SignalGuard& signals, RunClock* clock, LauncherHold& hold,
      RunEvaluation* evaluation)
      : signals_(signals), clock_(clock), hold_(hold), lock_(std::move(started.lock)), mesh_(std::move(started.mesh)),
        state_(std::move(started.state)), batches_(*state_, *mesh_, std::move(started.data.stages)),
        validation_(*state_, *mesh_), world_(mesh_->group(GroupKind::kWorld)), at_(at),
        first_step_(state_->position.step), from_scratch_(started.from_scratch),
        saves_(*state_, *mesh_, at, started.saved_step, std::move(started.local), std::move(started.old_local)),
        gate_(evaluation, *state_, saves_, at, signals), summary_(*state_, *mesh_, batches_.num_stages()),
        shares_cores_(share_cores(mesh_->world(), started.threads.threads)),
        threads_(started.threads.threads, !may_try_threads(started.threads) || !state_->model.device().is_cpu()),
        rehearsals_(rehearse()), watches_(*state_, at, shares_cores_),
        verification_(std::move(started.data.unverified)), times_(std::make_shared<PhaseTimes>(*mesh_)),
        rank_times_(*mesh_, *times_), trace_(*state_, *mesh_, at) {
    const auto& config = state_->config;
    state_->phases = at.phases;
    state_->phases.times = times_;
    batches_.record_spans(trace_.log());
    saves_.record_spans(trace_.log());
    if (!state_->model.device().is_cpu()) state_->next_batch = [this] { return batches_.ahead(); };
    if (!state_->model.device().is_cpu() && world_.size() > 1) {
      device_watch_.emplace(*mesh_, state_->model.device(), config.parallelism.collective_timeout_s);
      state_->step_is_queued = [this] { device_watch_->step_is_queued(); };
    }
    if (mesh_->is_first()) {
      metrics_.emplace(config.train.run_dir, config.metrics.tensorboard, first_step_,
                       hyperparameters_of(state_->run_config));
      lines_.emplace(config.metrics.log_interval, first_step_, state_->run_config.train.steps);
    }
    at.phases.times = times_;  // last: only a Run that was made takes it back
  }

  ~Run() { at_.phases.times = nullptr; }

  int loop() {
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
  // The faults of [faults], before all that looks at a step.
  std::shared_ptr<Rehearsals> rehearse() {
    const FaultsConfig& faults = state_->run_config.faults;
    if (faults.plan.empty()) return nullptr;
    auto rehearsals = std::make_shared<Rehearsals>(faults, *state_, at_);
    state_->observers.add(rehearsals);
    return rehearsals;
  }

  int steps() {
    const auto& config = state_->config;
    at_.phases.enter(board::Phase::kStart);
    if (config.integrity.probe && world_.size() > 1) probe("start");
    const Requests early = requests();  // asked for during the start
    if (!saves_.is_saved() && (early.stop() || is_complete())) saves_.save_checkpoint(RunSaves::Why::kLast);
    if (early.stop()) return end_stopped(early);
    if (is_complete()) saves_.write_missing_model();
    if (!is_complete() && first_step_ > 0) saves_.save_local();  // a node that was lost has no copies yet
    if ((!is_complete() && gate_.is_due_on_start()) || gate_.is_owed(is_complete())) {
      const EvaluationScores scores = evaluate();
      if (metrics_) metrics_->write_start(scores, first_step_);
      const Requests asked = requests();
      if (asked.stop()) return end_stopped(asked);  // nothing was learnt: the next attempt begins here again
      if (gate_.stops()) return saves_.end_by_rule(gate_.reason());
      if (unreadable_) throw UnreadableData(*unreadable_);
    }
    while (!is_complete()) {
      if (batches_.must_enter()) enter_stage();
      at_.set_step(state_->position.step + 1);
      std::optional<StepMetrics> metrics = one_step();
      Requests asked = requests();
      saves_.look_after(asked.saving);
      note_saves();
      if (asked.probe) probe("asked");
      if (!metrics) {  // the batch was skipped
        for (const auto& line : batches_.supply().short_by_skips) log::warn_on_all("{}", line);
        saves_.save_without_a_step(asked);
        if (asked.stop_signal != 0 || asked.time_is_up) return end_stopped(asked);
        if (unreadable_) throw UnreadableData(*unreadable_);
        continue;
      }
      if (due(state_->position.step, config.train.validation_interval.count) ||
          (is_complete() && !config.train.validation_interval.is_off()))
        validate(*metrics);
      if (gate_.is_due(is_complete()) && !asked.stop()) metrics->evaluation = evaluate();
      if (gate_.was_interrupted()) asked = requests();
      show(*metrics);
      const bool ends = is_complete() || asked.stop() || gate_.stops();
      const bool has_checkpoints = !config.checkpoint.interval.is_off();
      if (due(state_->position.step, config.checkpoint.model_interval) || (ends && ends_with_a_model()) ||
          (asked.save && !has_checkpoints))
        saves_.save_model();
      const bool is_due = due(state_->position.step, config.checkpoint.interval.count);
      if (has_checkpoints && (is_due || ends || asked.save))
        saves_.save_checkpoint(ends ? RunSaves::Why::kLast : is_due ? RunSaves::Why::kDue : RunSaves::Why::kAsked);
      else if (due(state_->position.step, config.checkpoint.local_interval))
        saves_.save_local();
      note_saves();
      trace_.end();
      fault_point("train.after_step");
      if (asked.stop_signal != 0 || (asked.time_is_up && !is_complete())) return end_stopped(asked);
      if (gate_.stops()) return saves_.end_by_rule(gate_.reason());
      if (unreadable_) throw UnreadableData(*unreadable_);
    }
    return end_complete();
  }

  void probe(const std::string& why) {
    probe_and_record(*mesh_, at_,
                     {state_->config.train.run_dir, state_->model.device(), state_->position.step, shares_cores_}, why);
  }

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
    threads_.restart();
  }

  bool may_roll_back(Verdict verdict) const {
    return verdict == Verdict::kRefuse || (verdict == Verdict::kSpike && state_->config.train.on_spike == "roll_back");
  }

  // Nothing, if the step could not be applied and the run continues with the next batch.
  std::optional<StepMetrics> one_step() {
    const auto start = Clock::now();
    if (state_->position.step == first_step_) times_->take();  // what came before is the start of the attempt
    trace_.begin(state_->position.step + 1);
    at_.enter("data", board::Phase::kData);
    const Batch batch = batches_.take();
    at_.phase = "step";
    const double waited_s = batches_.take_waited_s(), data_s = seconds_since(start) + waited_s;
    const at::Device device = state_->model.device();
    const ops::TransferCounts transfers_before = ops::transfer_counts();
    ops::reset_peak_device_memory(device);
    watches_.begin_step();
    const StepReport report = step_on_threads(batch);
    at_.phases.enter(board::Phase::kIdle);
    trace_.add_actions();
    const ops::TransferCounts transfers = ops::transfer_counts() - transfers_before;
    const ops::DeviceMemory memory = ops::device_memory(device);
    if (may_roll_back(report.verdict)) {
      saves_.finish();     // it may be the newest checkpoint, from which the run continues
      at_.phase = "step";  // what fails from here on is the step
    }
    if (!watches_.applied(report, batch, saves_.saved_step())) return std::nullopt;
    if (report.step == first_step_ + 1)
      check_first_routing(state_->config.model, report.parts.routers, batch.num_sequences * batch.seq_len);
    if (from_scratch_ && report.step == 1)
      report_first_loss(state_->config.model, width_ratio(state_->config.optimizer, state_->config.model),
                        report.parts.loss_sum / static_cast<double>(report.parts.num_targets));
    StepMetrics metrics = summary_.summarize(report, batch, at_, data_s, seconds_since(start) + waited_s);
    metrics.watch_s = watches_.take_seconds();
    metrics.rank_times = rank_times_.took_step();
    metrics.layers = std::exchange(layers_, {});
    if (!device.is_cpu()) {
      metrics.transfers = transfers;
      metrics.device_memory = memory;
    }
    metrics.threads = at::get_num_threads();
    metrics.seconds_left = seconds_left();
    return metrics;
  }

  // Estimates from the time and the tokens of all steps since the first one of this attempt, which is slower than
  // others; validation and checkpoints count with them. Steps of other batch sizes take other times.
  std::optional<double> seconds_left() {
    const int64_t done = state_->position.step - first_step_ - 1;
    if (done < 1) {
      first_step_ended_ = Clock::now();
      first_step_tokens_ = state_->position.tokens_seen;
      return {};
    }
    return seconds_since(first_step_ended_) / static_cast<double>(state_->position.tokens_seen - first_step_tokens_) *
           static_cast<double>(batches_.tokens_left());
  }

  // Runs a step on the number of threads that the trial has reached.
  StepReport step_on_threads(const Batch& batch) {
    if (at::get_num_threads() != threads_.threads()) at::set_num_threads(threads_.threads());
    const auto& config = state_->config.metrics;
    if (due(state_->position.step + 1, config.layer_statistics))  // it takes longer: no measure for a trial of threads
      return observed_step(*state_, batch, config.tensorboard, layers_);
    const StepReport report = train_step(*state_, batch);
    if (!report.updates.empty()) return report;  // it took longer, too
    const double waited_s = report.forward_wait_s + report.backward_wait_s + report.optimizer_wait_s;
    const auto change = threads_.took(report.forward_s + report.backward_s + report.optimizer_s - waited_s);
    if (!change.empty()) log::info("step {}: {}", report.step, change);
    return report;
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
    const Requests asked = agree_on_requests(world_, signals_, clock_, saves_.is_writing(), failure);
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
    if (rehearsals_) rehearsals_->tell_what_did_not_act();
    if (code == exit_code::kComplete) watches_.tell_at_end();
    if (code != exit_code::kComplete || !metrics_) return code;
    for (const auto& line : report_.lines(state_->run_config, state_->position.step)) log::info("{}", line);
    return code;
  }

  int end_stopped(const Requests& asked) { return saves_.end_stopped(asked, clock_ ? clock_->limit() : ""); }

  void validate(StepMetrics& metrics) {
    at_.enter("validate", board::Phase::kValidate);
    at::set_num_threads(threads_.kept());
    try {
      const auto found = validation_.validate(batches_.data(), metrics);
      if (found) refuse_weights(found->loss, found->source);
    } catch (const UnreadableData& failure) {  // on all ranks: the step is shown and saved before the run ends
      unreadable_ = failure;
    }
  }

  EvaluationScores evaluate() {
    at::set_num_threads(threads_.kept());
    try {
      return gate_.evaluate();
    } catch (const UnreadableData& failure) {  // on all ranks, as in validate()
      unreadable_ = failure;
      evaluation_failed_ = true;
      return {};
    }
  }

  // Before anything of this step is saved. The checkpoint that is being written may be the one to go back to.
  [[noreturn]] void refuse_weights(double loss, const std::string& source) {
    saves_.finish();
    at_.phase = "validate";
    watches_.refuse_weights(loss, source, saves_.saved_step());
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
  comm::Communicator& world_;
  RunContext& at_;
  int64_t first_step_;
  bool from_scratch_;
  RunSaves saves_;
  RunGate gate_;
  StepSummary summary_;
  bool shares_cores_;  // the ranks of this host
  ThreadTrial threads_;
  std::shared_ptr<Rehearsals> rehearsals_;  // null without [faults]
  StepWatches watches_;
  Clock::time_point first_step_ended_;
  int64_t first_step_tokens_ = 0;             // seen by then
  Clock::time_point agreed_ = Clock::now();   // when the ranks last agreed on requests
  int64_t saves_noted_ = 0;                   // those that the clock was told of
  double longest_step_s_ = 0;                 // with what comes between two steps
  std::optional<LayerMetrics> layers_;        // set in a step that shows them
  std::optional<UnreadableData> unreadable_;  // ends the run after this step
  bool evaluation_failed_ = false;            // which is what could not be read
  std::optional<DeviceWatch> device_watch_;
  std::optional<MetricsLog> metrics_;  // on the first rank, like the two after it
  std::optional<StepLines> lines_;
  RunReport report_;
  BackgroundVerification verification_;
  std::shared_ptr<PhaseTimes> times_;
  RankTimesGatherer rank_times_;
  StepTrace trace_;
};

}  // namespace

int run_training(RunConfig config, comm::World& world, RunContext& context, RunEvaluation* evaluation) {
  LauncherHold hold;
  const SignalGuard signals("finishing the step and saving", warning_of(config.train.on_sigusr1),
                            warning_of(config.train.on_sigusr2));
  try {
    std::optional<RunClock> clock;
    if (world.rank() == 0) {
      const std::set<std::string> hosts(world.hosts().begin(), world.hosts().end());
      clock.emplace(config, std::ssize(hosts));
    }
    std::optional<int> code;
    std::optional<RollBack> back;
    while (!code) {
      StartedRun started = start_run(config, world, context, signals, evaluation, back ? &back->ledger : nullptr);
      if (back) {
        started.state->position.spikes.continue_after(back->spikes);
        back.reset();
      }
      try {
        Run run(std::move(started), context, signals, clock ? &*clock : nullptr, hold, evaluation);
        code = run.loop();
      } catch (const RollBack& asked) {
        back = asked;
        if (config.checkpoint.resume == "never")
          config.checkpoint.resume = "auto";  // the run that is there is this one
      }
    }
    world.all().barrier();  // a launcher that is let go ends all ranks of its host
    return *code;
  } catch (const StoppedAtStart& stop) {
    log::info("stopped by {} before the first step; nothing was changed: run the same command again",
              signal_name(stop.signal_number));
    return exit_code_of_stop(stop.signal_number);
  }
}

}  // namespace athanor
