#include "train/weight_update.h"

#include <algorithm>
#include <iterator>

#include "moe/router.h"

namespace athanor::inline train {
namespace {

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

}  // namespace

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

void learn_from_choices(ModelState& model, const RouterCounts& routers, int64_t tokens, double bias_rate,
                        const Tensor& applies) {
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

}  // namespace athanor::inline train
