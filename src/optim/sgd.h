#pragma once
// Stochastic gradient descent with momentum, the reference that other optimizers are compared with. Momentum as in
// torch.optim.SGD (Sutskever et al. 2013); decay is decoupled, as in all optimizers here.

#include "config/run_config.h"
#include "optim/optimizer.h"

namespace athanor::inline optim {

class Sgd : public Optimizer {
 public:
  /// @param config  gives momentum and nesterov.
  Sgd(const OptimizerConfig& config, OptimizedParameters parameters);

  /// Memory traffic: 24 bytes an owned element: master, gradient and momentum are read and written.
  int64_t apply(const Update& update, FlatRange range) override;
  using Optimizer::apply;

 private:
  kernels::SgdStep rule_;
};

}  // namespace athanor::inline optim
