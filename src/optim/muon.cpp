#include "optim/muon.h"

#include "config/precision.h"
#include "ops/tensor.h"
#include "optim/optimizer_set.h"

#include <algorithm>
#include <cmath>

namespace athanor::inline optim {

ops::NewtonSchulz newton_schulz_of(const OptimizerConfig& config) {
  const auto& c = config.newton_schulz_coefficients;
  return {config.newton_schulz_steps, {c[0], c[1], c[2]}, ops::scalar_type(orthogonalize_type(config))};
}

double muon_scale(MuonScale rule, int64_t rows, int64_t columns) {
  const auto m = static_cast<double>(rows), n = static_cast<double>(columns);
  return rule == MuonScale::kMoonshot ? 0.2 * std::sqrt(std::max(m, n)) : std::sqrt(std::max(1.0, m / n));
}

Muon::Muon(const OptimizerConfig& config, OptimizedParameters parameters, const HomeMatrices& homes)
    : Optimizer(declare_optimizer("muon"), std::move(parameters)), momentum_{}, iteration_(newton_schulz_of(config)),
      scale_(config.muon_scale), homes_(homes), plan_(homes.plan(this->parameters().entries())) {
  momentum_.momentum = static_cast<float>(config.momentum);
  momentum_.nesterov = config.nesterov;
}

void Muon::begin(const Update& given) {
  const Tensor& grad = parameters().store().grad();
  kernels::MomentumStep rule = momentum_;
  rule.grad_scale = static_cast<float>(given.grad_scale);
  parameters().for_each_owned({0, grad.size(0)}, [&](const auto&, FlatRange owned, int64_t begin) {
    ops::momentum_direction(rule, grad.narrow(0, owned.begin, owned.size()),
                            state("momentum").narrow(0, begin, owned.size()), given.on_device);
  });
  homes_.update(plan_, grad, [&](std::span<const HomeStack> stacks) {
    for (const HomeStack& stack : stacks) {
      ops::orthogonalize(stack.values, iteration_);
      stack.values.mul_(muon_scale(scale_, stack.values.size(1), stack.values.size(2)));
    }
  });
}

int64_t Muon::apply(const Update& given, FlatRange range) {
  int64_t changed = 0;
  parameters().for_each_owned(range, [&](const auto& segment, FlatRange owned, int64_t) {
    const double lr = given.lr * segment.lr_scale;
    const kernels::SubtractRule rule{static_cast<float>(1 - lr * segment.weight_decay), static_cast<float>(lr)};
    changed += ops::update(rule, 1, parameters().memory(owned), {}, given.on_device);
  });
  return changed;
}

std::unique_ptr<Optimizer> make_muon(const OptimizerConfig& config, OptimizedParameters parameters,
                                     const OptimizerServices& services) {
  return std::make_unique<Muon>(config, std::move(parameters), *services.homes);
}

}  // namespace athanor::inline optim
