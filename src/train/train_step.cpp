#include "train/train_step.h"

#include <chrono>

#include "optim/clip.h"
#include "optim/gradient_norm.h"
#include "optim/schedule.h"
#include "parallel/loss_sum.h"
#include "train/microbatch.h"

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
  return split_batch(batch, s.stage.config, s.data.eos_id, step, s.layout, s.mesh.data_rank());
}

// Gradients of the loss on the labels that an optimizer asks for, at the weights of this step. Losses, counts and
// observers see nothing of it.
void second_backward(TrainState& s, std::vector<Microbatch> microbatches, int64_t step) {
  const auto labels = s.optimizers.second_backward(step);
  if (!labels) return;
  for (Microbatch& each : microbatches) relabel(each, *labels);
  const Observers::Pause unobserved(s.observers);
  PipelineHooks hooks;
  hooks.before_last_backward = [&](int) { s.last_microbatch = true; };
  hooks.after = [&](const Action&) { s.last_microbatch = false; };
  s.pipeline.forward_backward(microbatches, hooks);
  s.reducer.finish();
  s.optimizers.learn_from_second(step);
  s.parameters.grad().zero_();
}

void forward_backward(TrainState& s, std::span<const Microbatch> microbatches, StepReport& report, Stopwatch& watch) {
  PipelineHooks hooks;
  hooks.before_last_backward = [&](int) { s.last_microbatch = true; };
  hooks.after = [&](const Action& action) {
    s.last_microbatch = false;
    const bool forward = action.work == Work::kForward;
    watch.add_to(forward ? report.forward_s : report.backward_s,
                 forward ? report.forward_wait_s : report.backward_wait_s);
  };
  report.parts = s.pipeline.forward_backward(microbatches, hooks);
}

// What this step's choices change in the next one: the shares that aux_scope "global" weighs it by, and the biases.
void learn_from_choices(TrainState& s, const RouterCounts& routers, int64_t tokens) {
  if (!routers.defined()) return;
  s.set_previous_share(routers.chosen.to(at::kFloat) / static_cast<double>(tokens));
  const double rate = s.config.moe.bias_update_rate;
  if (rate > 0) moe::update_router_bias(s.router_bias, routers.chosen, rate);
}

// Bucket by bucket in the order of forward, so that weights of the first layers travel while the rest is updated.
int64_t update_and_gather(TrainState& s, const StepReport& report, double scale) {
  const Update update{report.step, report.lr, scale};
  s.optimizers.begin(update);
  if (s.plan.is_trivial()) return s.optimizers.apply(update, {0, s.parameters.flat_size()});
  int64_t changed[2] = {0, 0};  // dense, experts
  for (const Bucket& bucket : s.parameters.buckets()) {
    const int64_t here = s.optimizers.apply(update, bucket.range);
    if (s.plan.of(bucket).is_canonical()) changed[bucket.replication.is_expert()] += here;
    s.gatherer.start(bucket);
  }
  // Copies of a shard change equally, so each counts for its share.
  const Tensor all = at::tensor({changed[0], changed[1]}, at::kLong);
  const auto copies = [&](Replication kind) { return s.plan.of(kind).copies ? s.plan.of(kind).copies->size() : 1; };
  s.mesh.group(GroupKind::kModel).all_reduce(all).wait();
  s.mesh.group(GroupKind::kData).all_reduce(all).wait();
  return all[0].item<int64_t>() / copies(Replication::kDense) + all[1].item<int64_t>() / copies(Replication::kExpert);
}

}  // namespace

StepReport compute_gradients(TrainState& s, const Batch& batch) {
  StepReport report;
  Stopwatch watch(s.mesh);
  report.step = s.step + 1;
  const auto microbatches = microbatches_of(s, batch, report.step);
  second_backward(s, microbatches, report.step);
  forward_backward(s, microbatches, report, watch);
  s.reducer.finish();
  report.reduction = s.reducer.trace();
  sum_over_ranks(s.mesh.group(GroupKind::kPipeline), report.parts);
  sum_over_ranks(s.mesh.group(GroupKind::kData), report.parts);
  const GradientNorms norms = gradient_norms(s.parameters, s.plan);
  report.grad_norm = norms.total;
  report.rank_norms = {norms.ranks, norms.experts};
  watch.add_to(report.backward_s, report.backward_wait_s);
  return report;
}

void apply_update(TrainState& s, const Batch& batch, StepReport& report) {
  Stopwatch watch(s.mesh);
  const auto& config = s.stage.config;
  const int64_t step_in_stage = report.step - s.stage.begin;
  report.lr = learning_rate(config.optimizer, step_in_stage, config.train.steps);
  report.verdict = judge(report.parts.loss_sum, report.grad_norm);
  if (report.verdict == Verdict::kApply) {
    report.changed = update_and_gather(s, report, clip_scale(config.optimizer, report.grad_norm, step_in_stage));
    const int64_t tokens = batch.num_sequences * batch.seq_len;
    learn_from_choices(s, report.parts.routers, tokens);
    s.step = report.step;
    s.tokens_seen += tokens;
    s.ledger = batch.next;
  }
  watch.add_to(report.optimizer_s, report.optimizer_wait_s);
}

StepReport train_step(TrainState& s, const Batch& batch) {
  StepReport report = compute_gradients(s, batch);
  apply_update(s, batch, report);
  return report;
}

}  // namespace athanor
