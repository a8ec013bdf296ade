#include "train/train_step.h"

#include <chrono>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <utility>

#include "ops/adamw.h"
#include "ops/transfer.h"
#include "optim/clip.h"
#include "optim/gradient_norm.h"
#include "optim/schedule.h"
#include "parallel/loss_sum.h"
#include "train/microbatch.h"
#include "train/packed_numbers.h"
#include "train/update_sums.h"

namespace athanor {
namespace {

// Adds the time since it was last asked to one of the report's sums, and what of it was waited for other ranks.
class Stopwatch {
 public:
  explicit Stopwatch(const Mesh& mesh) : mesh_(mesh), waited_s_(mesh.waited_s()) {}

  void add_to(double& seconds, double& wait_s) {
    const auto now = Clock::now();
    seconds += std::chrono::duration<double>(now - last_).count();
    last_ = now;
    const double waited_s = mesh_.waited_s();
    wait_s += waited_s - waited_s_;
    waited_s_ = waited_s;
  }

 private:
  using Clock = std::chrono::steady_clock;
  const Mesh& mesh_;
  double waited_s_;
  Clock::time_point last_ = Clock::now();
};

std::vector<Microbatch> microbatches_of(const TrainState& s, const Batch& batch, int64_t step) {
  return split_batch(batch, s.config, s.data.eos_id, step, s.model.mesh.layout(), s.model.mesh.data_rank());
}

}  // namespace

LossParts run_microbatches(TrainState& s, std::span<const Microbatch> microbatches,
                           const std::function<void(const Action&)>& after) {
  PipelineHooks hooks;
  if (s.phases.are_seen())
    hooks.before = [&](const Action& action) {
      const bool forward = action.work == Work::kForward;
      s.phases.enter(forward ? board::Phase::kForward : board::Phase::kBackward, action.microbatch);
    };
  if (s.phases.spans) {
    hooks.begins = [&](const Action&) { s.phases.spans->begin_action(); };
    hooks.ends = [&](const Action&) { s.phases.spans->end_action(); };
  }
  hooks.before_last_backward = [&](int) { s.optimizer.last_microbatch = true; };
  hooks.after = [&](const Action& action) {
    s.optimizer.last_microbatch = false;
    if (after) after(action);
  };
  s.observers.begin_gradients();
  LossParts parts = s.model.pipeline.forward_backward(microbatches, hooks);
  s.phases.enter(board::Phase::kReduce);
  s.optimizer.reducer.finish();
  s.observers.end_gradients();
  return parts;
}

namespace {

// Gradients of the loss on the labels that an optimizer asks for, at the weights of this step. Losses, counts and
// observers see nothing of it.
void second_backward(TrainState& s, std::vector<Microbatch> microbatches, int64_t step, int64_t num_targets) {
  const auto labels = s.optimizer.set.second_backward(step);
  if (!labels) return;
  const auto record = s.drawn_labels ? s.drawn_labels(step) : nullptr;
  for (Microbatch& each : microbatches) {
    relabel(each, *labels, s.config.train.seed);
    each.labels.draw.record = record;
  }
  send_to(s.model.device(), microbatches);
  const Observers::Pause unobserved(s.observers);
  run_microbatches(s, microbatches, {});
  if (s.second_gradients_are_ready) s.second_gradients_are_ready(step);
  s.optimizer.set.learn_from_second(step, num_targets);
  s.model.parameters.grad().zero_();
}

// What this step's choices change in the next one: the shares that aux_scope "global" weighs it by, and the biases.
// `applies` is defined if the host does not know yet whether the step is refused.
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

// Returns how many of this rank's weights changed.
int64_t update_range(OptimizerSet& optimizers, const Update& update, FlatRange range, UpdateObserver* observer) {
  if (!observer) return optimizers.apply(update, range);
  int64_t changed = 0;
  for (int64_t at = range.begin; at < range.end; at += kUpdateBlock) {
    const FlatRange block{at, std::min(range.end, at + kUpdateBlock)};
    observer->before_update(block);
    changed += optimizers.apply(update, block);
    observer->after_update(block);
  }
  return changed;
}

// Weights that an update changed: dense ones, experts, and those that another rank counts.
enum Counted : int64_t { kDense, kExperts, kElsewhere, kNumCounted };

// Bucket by bucket in the order of forward, so that weights of the first layers travel while the rest is updated.
// Returns the number of each Counted of all ranks, and then what the optimizers count: int64, on the model's device.
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
    if (changed.is_cpu()) count.add_(here);
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

// Copies of a shard change equally, so each counts for its share. Optimizers count every element once.
void take_counts(StepReport& report, const ShardPlan& plan, const OptimizerSet& optimizers, const Tensor& changed) {
  const auto copies = [&](Replication kind) { return plan.of(kind).copies ? plan.of(kind).copies->size() : 1; };
  report.changed = changed[kDense].item<int64_t>() / copies(Replication::kDense) +
                   changed[kExperts].item<int64_t>() / copies(Replication::kExpert);
  int64_t at = kNumCounted;
  for (const std::string& name : optimizers.count_names())
    report.optimizer_counts[name] = changed[at++].item<int64_t>();
}

// Returns the step's microbatches on the device of the model. Before that the second backward runs, if an optimizer
// asks for one.
std::vector<Microbatch> begin_step(TrainState& s, const Batch& batch, int64_t step) {
  std::optional<SentAhead> ahead = std::exchange(s.ahead, std::nullopt);
  if (ahead && ahead->step == step && ahead->tokens == batch.tokens.data()) return std::move(ahead->microbatches);
  auto microbatches = microbatches_of(s, batch, step);
  second_backward(s, microbatches, step, batch.num_sequences * (batch.seq_len - 1));
  send_to(s.model.device(), microbatches);
  return microbatches;
}

// Sends what the next step reads while the device computes this one.
void send_ahead(TrainState& s, int64_t next_step) {
  if (!s.next_batch || s.optimizer.set.second_backward(next_step)) return;
  const Batch* batch = s.next_batch();
  if (!batch) return;
  s.ahead = SentAhead{next_step, batch->tokens.data(), microbatches_of(s, *batch, next_step)};
  send_to(s.model.device(), s.ahead->microbatches);
}

}  // namespace

namespace {

// Looks at gradients before they are summed, while it exists.
class NoiseMeasurement {
 public:
  NoiseMeasurement(TrainState& s, int64_t step) : reducer_(s.optimizer.reducer) {
    const int64_t interval = s.config.metrics.noise_scale_interval;
    if (interval == 0 || step % interval != 0) return;
    probe_.emplace(s.model.parameters, s.model.plan);
    if (probe_->over_data_ranks()) reducer_.before_sums([this](const Bucket& bucket) { probe_->add(bucket); });
  }
  ~NoiseMeasurement() { reducer_.before_sums(nullptr); }
  NoiseMeasurement(const NoiseMeasurement&) = delete;
  NoiseMeasurement& operator=(const NoiseMeasurement&) = delete;

  void ended(const Action& action) {
    if (!probe_ || probe_->over_data_ranks() || action.work != Work::kBackward || action.microbatch != 0) return;
    probe_->add_first_microbatch();
  }
  // To be called when the gradients have been summed. Collective as NoiseProbe::finish; undefined if it is not the
  // step.
  Tensor finish() { return probe_ ? probe_->finish() : Tensor(); }

 private:
  GradientReducer& reducer_;
  std::optional<NoiseProbe> probe_;
};

}  // namespace

StepReport compute_gradients(TrainState& s, const Batch& batch) {
  StepReport report;
  Stopwatch watch(s.model.mesh);
  report.step = s.position.step + 1;
  if (s.compute_clock) {
    s.compute_clock->begin_step();
    s.compute_clock->start();
  }
  const std::vector<Microbatch> microbatches = begin_step(s, batch, report.step);
  NoiseMeasurement noise(s, report.step);
  report.parts = run_microbatches(s, microbatches, [&](const Action& action) {
    noise.ended(action);
    const bool forward = action.work == Work::kForward;
    watch.add_to(forward ? report.forward_s : report.backward_s,
                 forward ? report.forward_wait_s : report.backward_wait_s);
  });
  report.noise_on_device = noise.finish();
  sum_over_ranks(s.model.mesh.group(GroupKind::kPipeline), report.parts);
  sum_over_ranks(s.model.mesh.group(GroupKind::kData), report.parts);
  if (!s.model.device().is_cpu()) {
    report.norms_on_device = gradient_norms_on_device(s.model.parameters, s.model.plan);
    if (s.compute_clock) s.compute_clock->stop();
    return report;
  }
  if (report.noise_on_device.defined())
    report.noise = part_squares(std::exchange(report.noise_on_device, {}), s.model.plan);
  const GradientNorms norms = gradient_norms(s.model.parameters, s.model.plan);
  report.grad_norm = norms.total;
  report.rank_norms = {norms.ranks, norms.experts};
  report.reduction = s.optimizer.reducer.trace();
  watch.add_to(report.backward_s, report.backward_wait_s);
  return report;
}

namespace {

double mean_loss(const LossParts& parts) {
  return parts.loss_sum / static_cast<double>(std::max<int64_t>(1, parts.num_targets));
}

// Sets what follows an update.
void advance(TrainState& s, const Batch& batch, const StepReport& report) {
  s.position.step = report.step;
  s.position.tokens_seen += batch.num_sequences * batch.seq_len;
  s.position.ledger = batch.next;
}

// Whether the guard lets the step pass: what judge decides, on the device. bool, one element.
Tensor applies_on_device(const TrainState& s, const StepReport& report) {
  const Tensor &norm = report.norms_on_device.total, &parts = report.parts.on_device, sum = parts.select(0, 0);
  const Tensor finite = at::isfinite(norm).logical_and(at::isfinite(sum));
  if (std::isinf(s.limits.loss) && std::isinf(s.limits.grad_norm)) return finite;
  const Tensor loss = parts.size(0) > 3 ? sum / parts.select(0, 3).clamp_min(1)
                                        : sum / static_cast<double>(std::max<int64_t>(1, report.parts.num_targets));
  return finite.logical_and(norm.le(s.limits.grad_norm)).logical_and(loss.le(s.limits.loss));
}

// The factor of the gradient, or NaN if the guard refuses the step: what the host decides from numbers that it has,
// from numbers that it does not have yet. [1] fp32.
Tensor scale_on_device(const TrainState& s, const StepReport& report, bool warming_up) {
  const Tensor clipped = clip_scale(s.config.optimizer, report.norms_on_device.total, warming_up);
  return at::where(applies_on_device(s, report), clipped, std::numeric_limits<double>::quiet_NaN())
      .to(at::kFloat)
      .reshape({1});
}

// The host learns the numbers of a step in one copy, after everything of the step has been queued: the only wait.
void fetch_numbers(StepReport& report, const TrainState& s, Tensor changed, UpdateObserver* observer) {
  LossParts& parts = report.parts;
  auto [norm, squares] = std::exchange(report.norms_on_device, {});
  Tensor observed = observer ? observer->numbers_on_device() : Tensor();
  std::vector<Tensor*> all = tensors_of(parts);
  Tensor noise = std::exchange(report.noise_on_device, {});
  const auto& qk_clip = s.optimizer.set.qk_clip();
  Tensor logits = qk_clip ? qk_clip->numbers() : Tensor();
  for (Tensor* each : {&norm, &changed, &squares, &observed, &noise, &logits})
    if (each->defined()) all.push_back(each);
  unpack_numbers(ops::fetch(pack_numbers(all)).clone(), all);
  parts.loss_sum = parts.on_device[0].item<double>();
  parts.aux_sum = parts.on_device[1].item<double>();
  parts.z_sum = parts.on_device[2].item<double>();
  if (parts.on_device.size(0) > 3) parts.num_targets = std::llround(parts.on_device[3].item<double>());
  report.grad_norm = norm.item<double>();
  take_counts(report, s.model.plan, s.optimizer.set, changed);
  if (squares.defined()) {
    const GradientNorms norms = norms_of(squares, s.model.plan);
    report.rank_norms = {norms.ranks, norms.experts};
  }
  if (noise.defined()) report.noise = part_squares(noise, s.model.plan);
  if (observed.defined()) observer->take_numbers(observed);
  if (logits.defined()) report.largest_logit = largest_logit_of(logits);
  parts.on_device = Tensor();
}

void apply_on_device(TrainState& s, const Batch& batch, StepReport& report, UpdateObserver* observer, bool warming_up) {
  if (s.before_update) s.before_update();
  if (s.compute_clock) s.compute_clock->start();
  const Tensor scale = scale_on_device(s, report, warming_up);
  const Tensor changed =
      update_and_gather(s.model, s.optimizer.set, {report.step, report.lr, 1, {scale, {}}}, observer, s.phases);
  learn_from_choices(s.model, report.parts.routers, batch.num_sequences * batch.seq_len, s.config.moe.bias_update_rate,
                     scale.isnan().logical_not());
  if (s.compute_clock) s.compute_clock->stop();  // what the next step reads counts in no step
  if (s.step_is_queued) s.step_is_queued();
  send_ahead(s, report.step + 1);
  fetch_numbers(report, s, changed, observer);
  if (s.compute_clock) report.device_s = s.compute_clock->seconds();
  report.reduction = s.optimizer.reducer.trace();
  report.verdict = judge(mean_loss(report.parts), report.grad_norm, s.limits);
  if (report.verdict == Verdict::kApply) return advance(s, batch, report);
  report.largest_logit.reset();
}

void update_observed(TrainState& s, const Batch& batch, StepReport& report, UpdateObserver* observer) {
  Stopwatch watch(s.model.mesh);
  const SchedulePoint at{report.step - s.position.phase.schedule_begin,
                         s.position.tokens_seen + batch.num_sequences * batch.seq_len};
  const bool warming_up = is_warming_up(s.config.optimizer, at);
  report.lr = learning_rate(s.config.optimizer, at, s.config.train.steps);
  if (report.norms_on_device.total.defined()) {
    apply_on_device(s, batch, report, observer, warming_up);
    return watch.add_to(report.optimizer_s, report.optimizer_wait_s);
  }
  report.verdict = judge(mean_loss(report.parts), report.grad_norm, s.limits);
  if (report.verdict == Verdict::kApply) {
    const double scale = clip_scale(s.config.optimizer, report.grad_norm, warming_up);
    take_counts(report, s.model.plan, s.optimizer.set,
                update_and_gather(s.model, s.optimizer.set, {report.step, report.lr, scale}, observer, s.phases));
    if (s.optimizer.set.qk_clip()) report.largest_logit = largest_logit_of(s.optimizer.set.qk_clip()->numbers());
    learn_from_choices(s.model, report.parts.routers, batch.num_sequences * batch.seq_len,
                       s.config.moe.bias_update_rate);
    advance(s, batch, report);
  }
  watch.add_to(report.optimizer_s, report.optimizer_wait_s);
}

}  // namespace

void apply_update(TrainState& s, const Batch& batch, StepReport& report, UpdateObserver* observer) {
  if (s.gradients_are_ready) s.gradients_are_ready();
  const int64_t interval = s.config.metrics.update_watch_interval;
  if (interval == 0 || report.step % interval != 0) return update_observed(s, batch, report, observer);
  UpdateSums sums(s, observer);
  update_observed(s, batch, report, &sums);
  if (report.verdict == Verdict::kApply) report.updates = sums.take(report.lr);
}

StepReport train_step(TrainState& s, const Batch& batch) {
  StepReport report = compute_gradients(s, batch);
  apply_update(s, batch, report);
  return report;
}

}  // namespace athanor
