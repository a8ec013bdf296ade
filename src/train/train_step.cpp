#include "train/train_step.h"

#include <chrono>

#include "optim/clip.h"
#include "optim/schedule.h"
#include "train/microbatch.h"

namespace athanor {
namespace {

// Adds the time since it was last asked to one of the report's sums.
class Stopwatch {
 public:
  void add_to(double& seconds) {
    const auto now = Clock::now();
    seconds += std::chrono::duration<double>(now - last_).count();
    last_ = now;
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point last_ = Clock::now();
};

void forward_backward(TrainState& s, const Batch& batch, StepReport& report, Stopwatch& watch) {
  int index = 0;
  for (const Microbatch& microbatch : split_batch(batch, s.stage.config, s.data.eos_id, report.step)) {
    s.decoder.forward(index, microbatch.tokens, &microbatch.labels);
    watch.add_to(report.forward_s);
    s.decoder.backward(index, {});
    watch.add_to(report.backward_s);
    report.parts += s.decoder.take_parts(index++);
  }
}

// What this step's choices change in the next one: the shares that aux_scope "global" weighs it by, and the biases.
void learn_from_choices(TrainState& s, const RouterCounts& routers, int64_t tokens) {
  if (!routers.defined()) return;
  s.decoder.set_previous_share(routers.chosen.to(at::kFloat) / static_cast<double>(tokens));
  const double rate = s.config.moe.bias_update_rate;
  if (rate > 0) moe::update_router_bias(s.decoder.router_bias(), routers.chosen, rate);
}

}  // namespace

StepReport train_step(TrainState& s, const Batch& batch) {
  StepReport report;
  Stopwatch watch;
  report.step = s.step + 1;
  forward_backward(s, batch, report, watch);

  report.grad_norm = gradient_norm(s.parameters.grad());
  const auto& config = s.stage.config;
  const int64_t step_in_stage = report.step - s.stage.begin;
  report.lr = learning_rate(config.optimizer, step_in_stage, config.train.steps);
  report.verdict = judge(report.parts.loss_sum, report.grad_norm);
  if (report.verdict == Verdict::kApply) {
    const double scale = clip_scale(config.optimizer, report.grad_norm, step_in_stage);
    report.changed = s.optimizer.step(report.step, report.lr, scale);
    const int64_t tokens = batch.num_sequences * batch.seq_len;
    learn_from_choices(s, report.parts.routers, tokens);
    s.step = report.step;
    s.tokens_seen += tokens;
    s.ledger = batch.next;
  }
  watch.add_to(report.optimizer_s);
  return report;
}

}  // namespace athanor
