#include "blocks/norm.h"

namespace athanor::inline blocks {

NormBlock::NormBlock(const NormSpec& spec, const ParameterStore& parameters)
    : weight_(spec.has_weight() ? parameters.weight(spec.weight()) : Weight{}), eps_(spec.eps) {}

Tensor NormBlock::of(const Tensor& x) const {
  return weight_.defined() ? ops::rms_norm(x, weight_, eps_) : ops::layer_norm(x, eps_);
}

ops::NormedSum NormBlock::of(const Residual& residual) const {
  const auto& [x, branch] = residual;
  if (!branch.defined()) return {x, of(x)};
  return weight_.defined() ? ops::add_rms_norm(x, branch, weight_, eps_) : ops::add_layer_norm(x, branch, eps_);
}

}  // namespace athanor::inline blocks
