#include "optim/sgd.h"

namespace athanor::inline optim {

Sgd::Sgd(const OptimizerConfig& config, OptimizedParameters parameters)
    : Optimizer(declare_optimizer("sgd"), std::move(parameters)), rule_{} {
  rule_.momentum = static_cast<float>(config.momentum);
  rule_.nesterov = config.nesterov;
}

int64_t Sgd::apply(const Update& given, FlatRange range) {
  int64_t changed = 0;
  kernels::SgdStep rule = rule_;
  rule.grad_scale = static_cast<float>(given.grad_scale);
  parameters().for_each_owned(range, [&](const auto& segment, FlatRange owned, int64_t begin) {
    rule.lr = static_cast<float>(given.lr * segment.lr_scale);
    rule.weight_decay = static_cast<float>(segment.weight_decay);
    changed +=
        ops::sgd(rule, parameters().memory(owned), state("momentum").narrow(0, begin, owned.size()), given.on_device);
  });
  return changed;
}

}  // namespace athanor::inline optim
