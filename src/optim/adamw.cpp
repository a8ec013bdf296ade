#include "optim/adamw.h"

#include <cmath>

#include "base/error.h"
#include "ops/adamw.h"
#include "optim/optimizer_set.h"

namespace athanor::inline optim {

AdamW::AdamW(const OptimizerConfig& config, OptimizedParameters parameters)
    : Optimizer(declare_optimizer("adamw"), std::move(parameters)), config_(config) {}

AdamW::AdamW(const OptimizerConfig& config, ParameterStore& store)
    : AdamW(config, OptimizedParameters(store, plan_optimizers(config), "adamw")) {}

int64_t AdamW::apply(const Update& given, FlatRange range) {
  const double beta1 = config_.betas[0], beta2 = config_.betas[1];
  kernels::AdamwStep rule{};
  rule.beta1 = beta1;
  rule.beta2 = beta2;
  rule.eps = static_cast<float>(config_.eps);
  rule.grad_scale = static_cast<float>(given.grad_scale);
  int64_t changed = 0;
  const auto visit = [&](const OptimizedParameters::Segment& segment, FlatRange owned, int64_t state_begin) {
    ATHANOR_ASSERT(given.step > segment.since);
    const auto updates = static_cast<double>(given.step - segment.since);
    rule.lr = static_cast<float>(given.lr * segment.lr_scale);
    rule.weight_decay = static_cast<float>(segment.weight_decay);
    rule.bias_correction1 = static_cast<float>(1 - std::pow(beta1, updates));
    rule.bias_correction2 = static_cast<float>(1 - std::pow(beta2, updates));
    changed += update(rule, owned, state_begin, given);
  };
  parameters().for_each_owned(range, visit);
  return changed;
}

int64_t AdamW::update(const kernels::AdamwStep& rule, FlatRange range, int64_t state_begin, const Update& given) const {
  const auto state = [&](const Tensor& x) { return x.narrow(0, state_begin, range.size()); };
  const auto [weight, low, grad] = parameters().memory(range);
  const ops::AdamwMemory memory{weight, low, state(exp_avg()), state(exp_avg_sq()), grad};
  return ops::adamw(rule, memory, given.on_device);
}

std::unique_ptr<Optimizer> make_adamw(const OptimizerConfig& config, OptimizedParameters parameters,
                                      const OptimizerServices& /*services*/) {
  return std::make_unique<AdamW>(config, std::move(parameters));
}

}  // namespace athanor::inline optim
