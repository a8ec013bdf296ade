#include "train/train_step.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "config/due.h"
#include "ops/transfer.h"
#include "optim/clip.h"
#include "optim/schedule.h"
#include "parallel/loss_sum.h"
#include "train/gradients.h"
#include "train/microbatch.h"
#include "train/packed_numbers.h"
#include "train/update_sums.h"
#include "train/weight_update.h"

namespace athanor::inline train {

StepReport train_step(TrainState& state, const Batch& batch, const StepLimits& limits) {
  Step step(state, batch);
  if (step.second_backward()) step.learn_from_second();
  step.compute_gradients();
  step.update(limits);
  return step.finish();
}

Step::Step(TrainState& state, const Batch& batch) : state_(state), batch_(batch), watch_(state.model.mesh) {
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
  report_.parts = run_microbatches(state_, microbatches_, &measured);
  const Tensor squares = noise.finish();
  const ModelState& model = state_.model;
  sum_over_ranks(model.mesh.group(GroupKind::kPipeline), report_.parts);
  sum_over_ranks(model.mesh.group(GroupKind::kData), report_.parts);
  if (!model.device().is_cpu()) {
    on_device_ = {gradient_norms_on_device(model.parameters, model.plan), squares, {}};
    if (state_.compute_clock) state_.compute_clock->stop();
    return;
  }
  if (squares.defined()) report_.noise = part_squares(squares, model.plan);
  const GradientNorms norms = gradient_norms(model.parameters, model.plan);
  report_.grad_norm = norms.total;
  report_.rank_norms = {norms.ranks, norms.experts};
  report_.reduction = state_.optimizer.reducer.trace();
  watch_.add_to(report_.backward_s, report_.backward_wait_s);
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
  is_warming_up_ = is_warming_up(state_.config.optimizer, now);
  report_.lr = learning_rate(state_.config.optimizer, now, state_.config.train.steps);
  on_device_ ? queue_update() : update_on_host();
}

void Step::judge() {
  const LossParts& parts = report_.parts;
  const double loss = parts.loss_sum / static_cast<double>(std::max<int64_t>(1, parts.num_targets));
  report_.verdict = athanor::judge(loss, report_.grad_norm, limits_);
}

void Step::update_on_host() {
  judge();
  if (report_.verdict != Verdict::kApply) return;
  ModelState& model = state_.model;
  OptimizerSet& optimizers = state_.optimizer.set;
  const double scale = clip_scale(state_.config.optimizer, report_.grad_norm, is_warming_up_);
  take_counts(report_, model.plan, optimizers,
              update_and_gather(model, optimizers, {report_.step, report_.lr, scale}, observer_, state_.phases));
  if (optimizers.qk_clip()) report_.largest_logit = largest_logit_of(optimizers.qk_clip()->numbers());
  learn_from_choices(model, report_.parts.routers, num_tokens(), state_.config.moe.bias_update_rate);
}

namespace {

// Whether the guard lets the step pass: what judge() decides, from numbers on the device. bool, one element.
Tensor applies_on_device(const StepLimits& limits, const LossParts& parts, const Tensor& norm) {
  const Tensor sum = parts.on_device.select(0, 0);
  const Tensor finite = at::isfinite(norm).logical_and(at::isfinite(sum));
  if (std::isinf(limits.loss) && std::isinf(limits.grad_norm)) return finite;
  const Tensor loss = parts.on_device.size(0) > 3 ? sum / parts.on_device.select(0, 3).clamp_min(1)
                                                  : sum / static_cast<double>(std::max<int64_t>(1, parts.num_targets));
  return finite.logical_and(norm.le(limits.grad_norm)).logical_and(loss.le(limits.loss));
}

}  // namespace

// The factor of the gradient is NaN if the step is refused: with that, optimizers change nothing.
void Step::queue_update() {
  const Tensor& norm = on_device_->norms.total;
  if (state_.compute_clock) state_.compute_clock->start();
  const Tensor clipped = clip_scale(state_.config.optimizer, norm, is_warming_up_);
  const Tensor scale =
      at::where(applies_on_device(limits_, report_.parts, norm), clipped, std::numeric_limits<double>::quiet_NaN())
          .to(at::kFloat)
          .reshape({1});
  on_device_->changed = update_and_gather(state_.model, state_.optimizer.set,
                                          {report_.step, report_.lr, 1, {scale, {}}}, observer_, state_.phases);
  learn_from_choices(state_.model, report_.parts.routers, num_tokens(), state_.config.moe.bias_update_rate,
                     scale.isnan().logical_not());
  if (state_.compute_clock) state_.compute_clock->stop();  // what the next step reads counts in no step
}

bool Step::may_send_ahead() const {
  return on_device_.has_value() && !state_.optimizer.set.second_backward(report_.step + 1);
}

void Step::send_ahead(const Batch& next) {
  state_.ahead = SentAhead{report_.step + 1, next.next, microbatches_of(next, report_.step + 1)};
  send_to(state_.model.device(), state_.ahead->microbatches);
}

// In one copy, which is the only wait of the host.
void Step::fetch_numbers() {
  LossParts& parts = report_.parts;
  const ShardPlan& plan = state_.model.plan;
  const auto& qk_clip = state_.optimizer.set.qk_clip();
  auto& [norms, noise, changed] = *on_device_;
  Tensor observed = observer_ ? observer_->numbers_on_device() : Tensor();
  Tensor logits = qk_clip && was_updated_ ? qk_clip->numbers() : Tensor();
  std::vector<Tensor*> all = tensors_of(parts);
  for (Tensor* each : {&norms.total, &changed, &norms.squares, &observed, &noise, &logits})
    if (each->defined()) all.push_back(each);
  unpack_numbers(ops::fetch(pack_numbers(all)).clone(), all);
  parts.loss_sum = parts.on_device[0].item<double>();
  parts.aux_sum = parts.on_device[1].item<double>();
  parts.z_sum = parts.on_device[2].item<double>();
  if (parts.on_device.size(0) > 3) parts.num_targets = std::llround(parts.on_device[3].item<double>());
  parts.on_device = Tensor();
  report_.grad_norm = norms.total.item<double>();
  if (norms.squares.defined()) {
    const GradientNorms found = norms_of(norms.squares, plan);
    report_.rank_norms = {found.ranks, found.experts};
  }
  if (changed.defined()) take_counts(report_, plan, state_.optimizer.set, changed);
  if (noise.defined()) report_.noise = part_squares(noise, plan);
  if (observed.defined()) observer_->take_numbers(observed);
  if (logits.defined()) report_.largest_logit = largest_logit_of(logits);
  if (state_.compute_clock) report_.device_s = state_.compute_clock->seconds();
  report_.reduction = state_.optimizer.reducer.trace();
}

void Step::advance() {
  state_.position.step = report_.step;
  state_.position.tokens_seen += num_tokens();
  state_.position.ledger = batch_.next;
}

StepReport Step::finish() {
  if (on_device_) fetch_numbers();
  if (!was_updated_) return std::move(report_);
  if (on_device_) judge();
  const bool is_applied = report_.verdict == Verdict::kApply;
  if (is_applied) advance();
  if (!is_applied) report_.largest_logit.reset();
  watch_.add_to(report_.optimizer_s, report_.optimizer_wait_s);
  if (sums_ && is_applied) report_.updates = sums_->take(report_.lr);
  return std::move(report_);
}

}  // namespace athanor::inline train
