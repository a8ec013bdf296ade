#include "optim/optimizer_set.h"

#include <algorithm>

#include "arch/inventory.h"
#include "base/error.h"
#include "layout/width_groups.h"

namespace athanor::inline optim {

// Each is in the file of its optimizer.
using MakeOptimizer = std::unique_ptr<Optimizer>(const OptimizerConfig& config, OptimizedParameters parameters,
                                                 const OptimizerServices& services);
MakeOptimizer make_adamw, make_sgd, make_lamb, make_sophiag, make_muon;

namespace {

const std::map<std::string, MakeOptimizer*> kMakers = {
    {"adamw", make_adamw}, {"sgd", make_sgd}, {"lamb", make_lamb}, {"sophiag", make_sophiag}, {"muon", make_muon}};

}  // namespace

OptimizerSetup configured_optimizers(const OptimizerConfig& config) {
  const auto make = [config](const OptimizerDeclaration& declared, OptimizedParameters parameters,
                             const OptimizerServices& services) {
    const auto found = kMakers.find(declared.name);
    if (found == kMakers.end())
      fail<Error>("bug: optimizer {} is declared (layout/optimizer_state.cpp) and not made here", declared.name);
    return found->second(config, std::move(parameters), services);
  };
  return {plan_optimizers(config), make, config.qk_clip};
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
  services_.plan = &shards;
  if (count(&OptimizerNeeds::tensor_norms) > 0) services_.sums = std::make_unique<TensorSums>(model, store, shards);
  if (count(&OptimizerNeeds::home_matrices) > 0) services_.homes = std::make_unique<HomeMatrices>(store, shards);
  for (const OptimizerDeclaration& each : plan_.optimizers)
    optimizers_.push_back(setup.make(each, OptimizedParameters(store, plan_, each.name), services_));
  for (const ParameterSpec& each : make_inventory(model))
    if (plan_.optimizer_of(each.name, each.role).needs.second_backward) learn_from_second_.insert(each.name);
  fresh_after_ = {0};
  if (setup.qk_clip > 0) qk_clip_ = std::make_shared<QkClip>(model, setup.qk_clip, store, shards);
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
  fresh_after_ = {0};
  for (const auto& [name, step] : step_of_parameter)
    if (learn_from_second_.contains(name)) fresh_after_.insert(step);
}

std::optional<OtherLabels> OptimizerSet::second_backward(int64_t step) const {
  for (const auto& optimizer : optimizers_) {
    if (!optimizer->declaration().needs.second_backward) continue;
    if (auto labels = optimizer->second_backward(step, fresh_after_.contains(step - 1))) return labels;
  }
  return std::nullopt;
}

void OptimizerSet::learn_from_second(int64_t step, int64_t num_targets) {
  for (const auto& optimizer : optimizers_) {
    if (optimizer->declaration().needs.second_backward) optimizer->learn_from_second(step, num_targets);
  }
}

void OptimizerSet::begin(const Update& update) {
  for (const auto& optimizer : optimizers_) optimizer->begin(update);
  if (qk_clip_) qk_clip_->begin();
}

int64_t OptimizerSet::apply(const Update& update, FlatRange range) {
  int64_t changed = 0;
  for (const auto& optimizer : optimizers_) changed += optimizer->apply(update, range);
  if (qk_clip_) qk_clip_->apply(range, update.on_device);
  return changed;
}

std::vector<std::string> OptimizerSet::count_names() const {
  std::vector<std::string> names;
  for (const auto& optimizer : optimizers_) {
    for (const std::string& name : optimizer->count_names())
      names.push_back(optimizer->declaration().name + "_" + name);
  }
  return names;
}

Tensor OptimizerSet::counts() const {
  std::vector<Tensor> counts;
  for (const auto& optimizer : optimizers_) {
    if (optimizer->counts().defined()) counts.push_back(optimizer->counts());
  }
  return counts.empty() ? Tensor() : at::cat(counts);
}

}  // namespace athanor::inline optim
