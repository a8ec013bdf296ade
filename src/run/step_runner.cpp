#include "run/step_runner.h"

#include <utility>

#include "arch/width_scaling.h"
#include "base/log.h"
#include "base/wall_clock.h"
#include "config/due.h"
#include "memory/preflight.h"
#include "memory/rank_share.h"
#include "metrics/router_metrics.h"
#include "ops/transfer.h"
#include "train/train_step.h"

namespace athanor::inline run {

StepRunner::StepRunner(TrainState& state, Mesh& mesh, RunContext& at, const StartedRun& started, StageBatches& batches,
                       RunSaves& saves)
    : state_(state), mesh_(mesh), at_(at), batches_(batches), saves_(saves), first_step_(state.position.step),
      from_scratch_(started.from_scratch), summary_(state, mesh, batches.num_stages()),
      shares_cores_(share_cores(mesh.world(), started.threads.threads)),
      threads_(started.threads.threads, !may_try_threads(started.threads)), rehearsals_(rehearse()),
      watches_(state, at, shares_cores_), times_(std::make_shared<PhaseTimes>(mesh)), rank_times_(mesh, *times_),
      trace_(state, mesh, at) {
  state.phases = at.phases;
  state.phases.times = times_;
  batches.record_spans(trace_.log());
  saves.record_spans(trace_.log());
  if (mesh.has_device_groups())
    device_watch_.emplace(mesh, state.model.device(), state.config.parallelism.collective_timeout_s);
  at.phases.times = times_;  // last: only what was made takes it back
}

// The faults of [faults], before all that looks at a step.
std::shared_ptr<Rehearsals> StepRunner::rehearse() {
  const FaultsConfig& faults = state_.run_config.faults;
  if (faults.plan.empty()) return nullptr;
  auto rehearsals = std::make_shared<Rehearsals>(faults, state_, at_);
  state_.observers.add(rehearsals);
  return rehearsals;
}

void StepRunner::tell_at_end(bool is_complete) const {
  if (rehearsals_) rehearsals_->tell_what_did_not_act();
  if (is_complete) watches_.tell_at_end();
}

TakenStep StepRunner::take() {
  const auto start = Clock::now();
  if (state_.position.step == first_step_) times_->take();  // what came before is the start of the attempt
  trace_.begin(state_.position.step + 1);
  at_.enter("data", board::Phase::kData);
  const Batch batch = batches_.take();
  at_.phase = "step";
  const double waited_s = batches_.take_waited_s(), data_s = seconds_since(start) + waited_s;
  const at::Device device = state_.model.device();
  const ops::TransferCounts transfers_before = ops::transfer_counts();
  ops::reset_peak_device_memory(device);
  if (at::get_num_threads() != threads_.threads()) at::set_num_threads(threads_.threads());
  const StepReport report = compute(batch);
  try_threads(report);
  at_.phases.enter(board::Phase::kIdle);
  trace_.add_actions();
  const ops::TransferCounts transfers = ops::transfer_counts() - transfers_before;
  const auto memory = ops::device_memory(device);
  if (may_roll_back(report.verdict, state_.config.train)) {
    saves_.finish();     // it may be the newest checkpoint, from which the run continues
    at_.phase = "step";  // what fails from here on is the step
  }
  StepFate fate = watches_.fate_of(report, batch, saves_.saved_step());
  if (!fate.is_applied) return {{}, std::move(fate.roll_back)};
  check_first_numbers(report, batch);
  StepMetrics metrics = summary_.summarize(report, batch, at_, data_s, seconds_since(start) + waited_s);
  metrics.watch_s = watches_.take_seconds();
  metrics.rank_times = rank_times_.took_step();
  metrics.layers = std::exchange(layers_, {});
  metrics.device_memory = memory;
  if (memory) metrics.transfers = transfers;
  metrics.threads = at::get_num_threads();
  metrics.seconds_left = seconds_left();
  return {std::move(metrics), {}};
}

// The parts of a step, and what looks at it or is done between two of them.
StepReport StepRunner::compute(const Batch& batch) {
  watches_.begin_step();
  Step step(state_, batch);
  if (step.second_backward()) step.learn_from_second();
  const auto statistics = begin_statistics();  // null in most steps
  step.compute_gradients();
  state_.observers.remove(statistics);
  if (statistics) statistics->read_gradients();
  watches_.before_update();
  saves_.before_update();
  step.update(watches_.limits(), statistics.get());
  if (device_watch_) device_watch_->step_is_queued();
  const Batch* next = step.may_send_ahead() ? batches_.ahead() : nullptr;
  if (next) step.send_ahead(*next);
  StepReport report = step.finish();
  if (statistics && report.verdict == Verdict::kApply) layers_ = statistics->take(batch.num_sequences * batch.seq_len);
  return report;
}

std::shared_ptr<LayerStatistics> StepRunner::begin_statistics() {
  const auto& config = state_.config.metrics;
  if (!is_due(state_.position.step + 1, config.layer_statistics)) return nullptr;
  auto statistics = std::make_shared<LayerStatistics>(state_, config.tensorboard);
  state_.observers.add(statistics);
  return statistics;
}

// Steps that are looked at take longer, and are no measure.
void StepRunner::try_threads(const StepReport& report) {
  if (is_due(report.step, state_.config.metrics.layer_statistics) || !report.updates.empty()) return;
  const double waited_s = report.forward_wait_s + report.backward_wait_s + report.optimizer_wait_s;
  const auto change = threads_.took(report.forward_s + report.backward_s + report.optimizer_s - waited_s);
  if (!change.empty()) log::info("step {}: {}", report.step, change);
}

void StepRunner::check_first_numbers(const StepReport& report, const Batch& batch) const {
  const RunConfig& config = state_.config;
  if (report.step == first_step_ + 1)
    check_first_routing(config.model, report.parts.routers, batch.num_sequences * batch.seq_len);
  if (from_scratch_ && report.step == 1)
    report_first_loss(config.model, width_ratio(config.optimizer, config.model), report.parts.mean_loss());
}

// Estimates from the time and the tokens of all steps since the first one of this attempt, which is slower than others;
// validation and checkpoints count with them. Steps of other batch sizes take other times.
std::optional<double> StepRunner::seconds_left() {
  const int64_t done = state_.position.step - first_step_ - 1;
  if (done < 1) {
    first_step_ended_ = Clock::now();
    first_step_tokens_ = state_.position.tokens_seen;
    return {};
  }
  return seconds_since(first_step_ended_) / static_cast<double>(state_.position.tokens_seen - first_step_tokens_) *
         static_cast<double>(batches_.tokens_left());
}

}  // namespace athanor::inline run
