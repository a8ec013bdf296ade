#include "blocks/norm.h"

#include "ops/affine.h"

namespace athanor::inline blocks {

NormBlock::NormBlock(const NormSpec& spec, const ParameterStore& parameters)
    : weight_(spec.has_weight() ? parameters.weight(spec.weight()) : Weight{}),
      bias_(spec.has_bias() ? parameters.weight(spec.bias()) : Weight{}), is_rms_(spec.kind == NormKind::kRms),
      form_(spec.eps, spec.offset) {}

ops::NormedSum read_stream(const std::optional<NormBlock>& norm, const Residual& residual) {
  if (norm) return norm->of(residual);
  // The gradients of those that read the part's input are added up before that of the stream, as if it were a norm's.
  const Tensor sum = residual.sum();
  return {sum, sum.view_as(sum)};
}

Tensor branch_of(const std::optional<NormBlock>& norm, const Tensor& y) { return norm ? norm->of(y) : y; }

Tensor NormBlock::of(const Tensor& x) const {
  return is_rms_ ? ops::rms_norm(x, weight_, form_) : scaled(ops::layer_norm(x, form_.eps));
}

ops::NormedSum NormBlock::of(const Residual& residual) const {
  const auto& [x, branch] = residual;
  if (!branch.defined()) return {x, of(x)};
  if (is_rms_) return ops::add_rms_norm(x, branch, weight_, form_);
  const ops::NormedSum both = ops::add_layer_norm(x, branch, form_.eps);
  return {both.sum, scaled(both.normed)};
}

Tensor NormBlock::scaled(const Tensor& normed) const {
  return bias_.defined() ? ops::affine(normed, weight_, bias_) : normed;
}

}  // namespace athanor::inline blocks
