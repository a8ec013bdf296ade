// Stochastic gradient descent with momentum, the reference that other optimizers are compared with. Momentum as in
// torch.optim.SGD (Sutskever et al. 2013); decay is decoupled, as in all optimizers here.

#include "optim/optimizer_set.h"

namespace athanor::inline optim {
namespace {

class Sgd : public Optimizer {
 public:
  Sgd(const OptimizerConfig& config, OptimizedParameters parameters)
      : Optimizer(declare_optimizer("sgd"), std::move(parameters)), momentum_(static_cast<float>(config.momentum)),
        nesterov_(config.nesterov) {}

  // Memory traffic: 24 bytes an owned element: master, gradient and momentum are read and written.
  int64_t apply(const Update& given, FlatRange range) override {
    int64_t changed = 0;
    parameters().for_each_owned(range, [&](const auto& segment, FlatRange owned, int64_t begin) {
      const kernels::SgdRule rule{static_cast<float>(given.lr * segment.lr_scale),
                                  static_cast<float>(segment.weight_decay), momentum_, nesterov_};
      changed += ops::update(rule, static_cast<float>(given.grad_scale), parameters().memory(owned),
                             {state("momentum").narrow(0, begin, owned.size())}, given.on_device);
    });
    return changed;
  }

 private:
  float momentum_;
  bool nesterov_;
};

}  // namespace

std::unique_ptr<Optimizer> make_sgd(const OptimizerConfig& config, OptimizedParameters parameters,
                                    const OptimizerServices& /*services*/) {
  return std::make_unique<Sgd>(config, std::move(parameters));
}

}  // namespace athanor::inline optim
