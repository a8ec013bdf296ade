#include "optim/adamw.h"

#include <atomic>
#include <cmath>

#include "base/error.h"

namespace athanor {

AdamW::AdamW(const OptimizerConfig& config, OptimizedParameters parameters)
    : Optimizer(declare_optimizer(config), std::move(parameters)), config_(config) {}

AdamW::AdamW(const OptimizerConfig& config, ParameterStore& store)
    : AdamW(config, OptimizedParameters(store, plan_optimizers(config), declare_optimizer(config).name)) {}

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
    changed += update(rule, owned, state_begin);
  };
  parameters().for_each_owned(range, visit);
  return changed;
}

int64_t AdamW::update(const kernels::AdamwStep& rule, FlatRange range, int64_t state_begin) const {
  const ParameterStore& store = parameters().store();
  auto *m = exp_avg().data_ptr<float>() + state_begin, *v = exp_avg_sq().data_ptr<float>() + state_begin,
       *grad = store.grad().data_ptr<float>() + range.begin;
  const bool split = store.master_low().defined();
  auto* master = split ? nullptr : ops::pointer<float>(store.compute()) + range.begin;
  auto* weight = split ? ops::pointer<kernels::Bf16>(store.compute()) + range.begin : nullptr;
  auto* low = split ? ops::pointer<uint16_t>(store.master_low()) + store.state_begin(range) : nullptr;
  std::atomic<int64_t> changed{0};
  ops::for_rows(range.size(), 1, [&](int64_t at, int64_t end) {
    changed += split ? kernels::adamw(rule, weight + at, low + at, m + at, v + at, grad + at, end - at)
                     : kernels::adamw(rule, master + at, m + at, v + at, grad + at, end - at);
  });
  return changed;
}

}  // namespace athanor
