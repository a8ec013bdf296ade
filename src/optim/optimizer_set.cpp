#include "optim/optimizer_set.h"

#include <algorithm>

#include "base/error.h"
#include "layout/width_groups.h"
#include "optim/adamw.h"

namespace athanor {

OptimizerSetup configured_optimizers(const OptimizerConfig& config) {
  return {plan_optimizers(config),
          [config](const OptimizerDeclaration&, OptimizedParameters parameters, const OptimizerServices&) {
            return std::make_unique<AdamW>(config, std::move(parameters));
          }};
}

OptimizerSetup configured_optimizers(const RunConfig& config) {
  OptimizerSetup setup = configured_optimizers(config.optimizer);
  setup.plan.groups = scaled_by_width(std::move(setup.plan.groups), config);
  return setup;
}

OptimizerSet::OptimizerSet(OptimizerSetup setup, const ModelConfig& model, ParameterStore& store,
                           const ShardPlan& shards)
    : plan_(std::move(setup.plan)) {
  const auto count = [&](bool OptimizerNeeds::*need) {
    return std::ranges::count_if(plan_.optimizers, [&](const auto& each) { return each.needs.*need; });
  };
  ATHANOR_CHECK(count(&OptimizerNeeds::second_backward) <= 1,
                "{} optimizers ask for a second backward, and a step has one: give their groups one of them",
                count(&OptimizerNeeds::second_backward));
  if (count(&OptimizerNeeds::tensor_norms) > 0) services_.sums = std::make_unique<TensorSums>(model, store, shards);
  if (count(&OptimizerNeeds::whole_matrices) > 0) services_.matrices = std::make_unique<WholeMatrices>(store, shards);
  for (const OptimizerDeclaration& each : plan_.optimizers)
    optimizers_.push_back(setup.make(each, OptimizedParameters(store, plan_, each.name), services_));
}

int64_t OptimizerSet::state_bytes() const {
  size_t bytes = 0;
  for (const auto& optimizer : optimizers_) {
    for (const HeldState& held : optimizer->state()) bytes += held.values.nbytes();
  }
  return static_cast<int64_t>(bytes);
}

void OptimizerSet::set_fresh_since(const std::map<std::string, int64_t>& step_of_parameter) {
  for (const auto& optimizer : optimizers_) optimizer->set_fresh_since(step_of_parameter);
}

std::optional<OtherLabels> OptimizerSet::second_backward(int64_t step) const {
  for (const auto& optimizer : optimizers_) {
    if (!optimizer->declaration().needs.second_backward) continue;
    if (auto labels = optimizer->second_backward(step)) return labels;
  }
  return std::nullopt;
}

void OptimizerSet::learn_from_second(int64_t step) {
  for (const auto& optimizer : optimizers_) {
    if (optimizer->declaration().needs.second_backward) optimizer->learn_from_second(step);
  }
}

void OptimizerSet::begin(const Update& update) {
  for (const auto& optimizer : optimizers_) optimizer->begin(update);
}

int64_t OptimizerSet::apply(const Update& update, FlatRange range) {
  int64_t changed = 0;
  for (const auto& optimizer : optimizers_) changed += optimizer->apply(update, range);
  return changed;
}

}  // namespace athanor
