#include "train/train_step.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <utility>

#include "config/due.h"
#include "model/model_state.h"
#include "moe/router.h"
#include "ops/device_traits.h"
#include "ops/transfer.h"
#include "optim/gradient_norm.h"
#include "optim/optimizer_set.h"
#include "train/gradients.h"
#include "train/microbatch.h"
#include "train/run_phases.h"
#include "train/step_report.h"
#include "train/update_observer.h"
#include "train/update_sums.h"

namespace athanor::inline train {
namespace {

// Returns how many of this rank's weights changed.
int64_t update_range(OptimizerSet& optimizers, const Update& update, FlatRange range, UpdateObserver* observer) {
  if (!observer) return optimizers.apply(update, range);
  int64_t changed = 0;
  for (int64_t begin = range.begin; begin < range.end; begin += kUpdateBlock) {
    const FlatRange block{begin, std::min(range.end, begin + kUpdateBlock)};
    observer->before_update(block);
    changed += optimizers.apply(update, block);
    observer->after_update(block);
  }
  return changed;
}

// Weights that an update changed: dense ones, experts, and those that another rank counts.
enum Counted : int64_t { kDense, kExperts, kElsewhere, kNumCounted };

// Updates the weights bucket by bucket in the order of forward, so that those of the first layers travel to the ranks
// that read them while the rest is updated. Collective over the model's world.
// @param observer  null: none. It changes no bits.
// @return what take_counts reads: int64, on the model's device.
Tensor update_and_gather(ModelState& model, OptimizerSet& optimizers, Update update, UpdateObserver* observer,
                         const RunPhases& phases) {
  phases.enter(board::Phase::kUpdate);
  optimizers.begin(update);
  const auto num_counts = std::ssize(optimizers.count_names());
  const Tensor changed = at::zeros({kNumCounted + num_counts}, at::TensorOptions(at::kLong).device(model.device()));
  const auto update_counted = [&](FlatRange range, Counted kind) {
    const Tensor count = changed.narrow(0, kind, 1);
    update.on_device.changed = count;
    const int64_t here = update_range(optimizers, update, range, observer);
    if (here != 0) count.add_(here);  // a device has added its own
  };
  const auto note_counts = [&] {
    if (num_counts > 0) changed.narrow(0, kNumCounted, num_counts).copy_(optimizers.counts());
  };
  if (model.plan.is_trivial()) {
    update_counted({0, model.parameters.flat_size()}, kDense);
    note_counts();
    return changed;
  }
  for (const Bucket& bucket : model.parameters.buckets()) {
    const Counted kind = bucket.replication.is_expert() ? kExperts : kDense;
    update_counted(bucket.range, model.plan.of(bucket).is_canonical() ? kind : kElsewhere);
    model.gatherer.start(bucket);
  }
  phases.enter(board::Phase::kGather);
  note_counts();
  model.mesh.group(GroupKind::kModel).all_reduce(changed).wait();
  model.mesh.group(GroupKind::kData).all_reduce(changed).wait();
  return changed;
}

// Sets StepReport::changed and optimizer_counts. Copies of a shard change equally, so each counts for its share.
// Optimizers count every element once.
// @param counts  what update_and_gather returned, on the host.
void take_counts(StepReport& report, const ShardPlan& plan, const OptimizerSet& optimizers, const Tensor& changed) {
  const auto copies = [&](Replication kind) { return plan.of(kind).copies ? plan.of(kind).copies->size() : 1; };
  report.changed = changed[kDense].item<int64_t>() / copies(Replication::kDense) +
                   changed[kExperts].item<int64_t>() / copies(Replication::kExpert);
  int64_t index = kNumCounted;
  for (const std::string& name : optimizers.count_names())
    report.optimizer_counts[name] = changed[index++].item<int64_t>();
}

// Sets what the choices of a step change in the next one: the shares that moe.aux_scope "global" weighs it by, and the
// biases of the routers. Nothing in a dense model.
// @param tokens   of the batch.
// @param applies  bool, one element: false if the step turns out to be refused, and then nothing changes; undefined if
//                 the host knows that it is applied.
void learn_from_choices(ModelState& model, const RouterCounts& routers, int64_t tokens, double bias_rate,
                        const Tensor& applies = {}) {
  if (!routers.defined()) return;
  const auto if_applied = [&](const Tensor& now, const Tensor& before) {
    return applies.defined() ? at::where(applies, now, before) : now;
  };
  model.set_previous_share(
      if_applied(routers.chosen.to(at::kFloat) / static_cast<double>(tokens), model.previous_share));
  if (bias_rate == 0) return;
  const Tensor before = applies.defined() ? model.router_bias.clone() : Tensor();
  moe::update_router_bias(model.router_bias, routers.chosen, bias_rate);
  if (before.defined()) model.router_bias.copy_(if_applied(model.router_bias, before));
}

}  // namespace

StepReport train_step(TrainState& state, const Batch& batch, const StepLimits& limits) {
  Step step(state, batch);
  if (step.second_backward()) step.learn_from_second();
  step.compute_gradients();
  step.update(limits);
  return step.finish();
}

Step::Step(TrainState& state, const Batch& batch)
    : state_(state), batch_(batch), is_queued_(ops::traits_of(state.model.device()).is_queued),
      watch_(state.model.mesh) {
  report_.step = state.position.step + 1;
  if (!state.compute_clock) return;
  state.compute_clock->begin_step();
  state.compute_clock->start();
}

Step::~Step() = default;

std::vector<Microbatch> Step::microbatches_of(const Batch& batch, int64_t step) const {
  const Mesh& mesh = state_.model.mesh;
  return split_batch(batch, state_.config, state_.data.eos_id, step, mesh.layout(), mesh.data_rank());
}

bool Step::second_backward(std::shared_ptr<const ops::DrawnLabels> record) {
  const auto labels = state_.optimizer.set.second_backward(report_.step);
  if (!labels) return false;
  std::vector<Microbatch> relabelled = microbatches_of(batch_, report_.step);
  for (Microbatch& each : relabelled) {
    relabel(each, *labels, state_.config.train.seed);
    each.labels.draw.record = record;
  }
  send_to(state_.model.device(), relabelled);
  const Observers::Pause unobserved(state_.observers);
  run_microbatches(state_, relabelled);
  return true;
}

void Step::learn_from_second() {
  state_.optimizer.set.learn_from_second(report_.step, batch_.num_sequences * (batch_.seq_len - 1));
  state_.model.parameters.grad().zero_();
}

// Those that were sent ahead, if they are of this batch.
void Step::take_microbatches() {
  std::optional<SentAhead> ahead = std::exchange(state_.ahead, std::nullopt);
  if (ahead && ahead->step == report_.step && ahead->next == batch_.next) {
    microbatches_ = std::move(ahead->microbatches);
    return;
  }
  microbatches_ = microbatches_of(batch_, report_.step);
  send_to(state_.model.device(), microbatches_);
}

void Step::compute_gradients() {
  take_microbatches();
  NoiseMeasurement noise(state_, report_.step);
  const MicrobatchMeasurements measured{report_, watch_, noise};
  numbers_.losses = run_microbatches(state_, microbatches_, &measured);
  numbers_.noise = noise.finish();
  const ModelState& model = state_.model;
  sum_over_ranks(model.mesh.group(GroupKind::kPipeline), numbers_.losses);
  sum_over_ranks(model.mesh.group(GroupKind::kData), numbers_.losses);
  numbers_.squares = gradient_squares(model.parameters, model.plan);
  if (state_.compute_clock) state_.compute_clock->stop();
  if (!is_queued_) watch_.add_to(report_.backward_s, report_.backward_wait_s);
}

void Step::update(const StepLimits& limits, UpdateObserver* observer) {
  if (is_due(report_.step, state_.config.metrics.update_watch_interval))
    sums_ = std::make_unique<UpdateSums>(state_, observer);
  watch_.restart();
  limits_ = limits;
  observer_ = sums_ ? sums_.get() : observer;
  was_updated_ = true;
  const SchedulePoint now{report_.step - state_.position.phase.schedule_begin,
                          state_.position.tokens_seen + num_tokens()};
  report_.lr = learning_rate(state_.config.optimizer, now, state_.config.train.steps);
  if (state_.compute_clock) state_.compute_clock->start();
  const std::optional<Update> update = is_queued_ ? queued_update(now) : judged_update(now);
  if (!update) return;
  OptimizerSet& optimizers = state_.optimizer.set;
  numbers_.changed = update_and_gather(state_.model, optimizers, *update, observer_, state_.phases);
  if (optimizers.qk_clip()) numbers_.logits = optimizers.qk_clip()->numbers();
  learn_from_choices(state_.model, numbers_.losses.routers, num_tokens(), state_.config.moe.bias_update_rate,
                     is_queued_ ? update->on_device.applies() : Tensor());
  if (state_.compute_clock) state_.compute_clock->stop();  // what the next step reads counts in no step
}

// The update of a step whose numbers are on the host; nothing if the step is refused.
std::optional<Update> Step::judged_update(const SchedulePoint& now) {
  fetch_numbers();
  judge();
  if (report_.verdict != Verdict::kApply) return std::nullopt;
  const OptimizerConfig& config = state_.config.optimizer;
  return Update{report_.step, report_.lr, clip_scale(config, report_.grad_norm, is_warming_up(config, now)), {}};
}

void Step::judge() { report_.verdict = athanor::judge(report_.parts.mean_loss(), report_.grad_norm, limits_); }

namespace {

// Whether the guard lets the step pass: what judge() decides, from numbers on the device. bool, one element.
Tensor passes_there(const StepLimits& limits, const LossTotals& losses, const Tensor& norm) {
  const Tensor finite = at::isfinite(norm + losses.loss());  // one of them is not: nor is the sum
  if (std::isinf(limits.loss) && std::isinf(limits.grad_norm)) return finite;
  const Tensor loss = losses.loss() / losses.num_targets().clamp_min(1);
  return finite.logical_and(norm.le(limits.grad_norm)).logical_and(loss.le(limits.loss));
}

}  // namespace

// The update of a step whose numbers come later. The factor of the gradient is NaN if the step is refused: with that,
// optimizers change nothing.
Update Step::queued_update(const SchedulePoint& now) const {
  const Tensor& norm = numbers_.squares.norm;
  const OptimizerConfig& config = state_.config.optimizer;
  const Tensor clipped = clip_scale(config, norm, is_warming_up(config, now));
  const Tensor scale =
      at::where(passes_there(limits_, numbers_.losses, norm), clipped, std::numeric_limits<double>::quiet_NaN())
          .to(at::kFloat)
          .reshape({1});
  return {report_.step, report_.lr, 1, {scale, {}}};
}

bool Step::may_send_ahead() const { return is_queued_ && !state_.optimizer.set.second_backward(report_.step + 1); }

void Step::send_ahead(const Batch& next) {
  state_.ahead = SentAhead{report_.step + 1, next.next, microbatches_of(next, report_.step + 1)};
  send_to(state_.model.device(), state_.ahead->microbatches);
}

std::vector<Tensor*> Step::Numbers::tensors() {
  std::vector<Tensor*> all = losses.tensors();
  for (Tensor* each : {&squares.norm, &changed, &squares.of_ranks, &noise, &logits})
    if (each->defined()) all.push_back(each);
  return all;
}

// From a device in one copy, which is the only wait of the host.
void Step::fetch_numbers() {
  std::vector<Tensor*> all = numbers_.tensors();
  if (observer_) std::ranges::copy(observer_->numbers(), std::back_inserter(all));
  ops::fetch_together(all);
  const ShardPlan& plan = state_.model.plan;
  report_.parts = numbers_of(numbers_.losses);
  report_.grad_norm = numbers_.squares.norm.item<double>();
  report_.rank_norms = norms_by_rank(numbers_.squares, plan);
  if (numbers_.changed.defined()) take_counts(report_, plan, state_.optimizer.set, numbers_.changed);
  if (numbers_.noise.defined()) report_.noise = part_squares(numbers_.noise, plan);
  if (numbers_.logits.defined()) report_.largest_logit = largest_logit_of(numbers_.logits);
  if (state_.compute_clock) report_.device_s = state_.compute_clock->seconds();
  report_.reduction = state_.optimizer.reducer.trace();
}

void Step::advance() {
  state_.position.step = report_.step;
  state_.position.tokens_seen += num_tokens();
  state_.position.ledger = batch_.next;
}

StepReport Step::finish() {
  fetch_numbers();
  if (!was_updated_) return std::move(report_);
  judge();
  const bool is_applied = report_.verdict == Verdict::kApply;
  if (is_applied) advance();
  if (!is_applied) report_.largest_logit.reset();
  watch_.add_to(report_.optimizer_s, report_.optimizer_wait_s);
  if (sums_ && is_applied) report_.updates = sums_->take(report_.lr);
  return std::move(report_);
}

}  // namespace athanor::inline train
