#pragma once
// The update of the weights of a step that is applied.

#include "model/model_state.h"
#include "optim/optimizer_set.h"
#include "train/run_phases.h"
#include "train/step_report.h"
#include "train/update_observer.h"

namespace athanor::inline train {

/// Updates the weights bucket by bucket in the order of forward, so that those of the first layers travel to the ranks
/// that read them while the rest is updated. Collective over the model's world.
/// @param observer  null: none. It changes no bits.
/// @return what take_counts reads: int64, on the model's device.
Tensor update_and_gather(ModelState& model, OptimizerSet& optimizers, Update update, UpdateObserver* observer,
                         const RunPhases& phases);

/// Sets StepReport::changed and optimizer_counts.
/// @param counts  what update_and_gather returned, on the host.
void take_counts(StepReport& report, const ShardPlan& plan, const OptimizerSet& optimizers, const Tensor& counts);

/// Sets what the choices of a step change in the next one: the shares that moe.aux_scope "global" weighs it by, and the
/// biases of the routers. Nothing in a dense model.
/// @param tokens   of the batch.
/// @param applies  bool, one element: false if the step turns out to be refused, and then nothing changes; undefined if
///                 the host knows that it is applied.
void learn_from_choices(ModelState& model, const RouterCounts& routers, int64_t tokens, double bias_rate,
                        const Tensor& applies = {});

}  // namespace athanor::inline train
