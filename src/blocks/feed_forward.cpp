#include "blocks/feed_forward.h"

#include "ops/swiglu.h"

namespace athanor::inline blocks {

FeedForwardBlock::FeedForwardBlock(const FeedForwardSpec& spec, const ParameterStore& parameters)
    : kind_(spec.kind), up_(spec.up, parameters), down_(spec.down, parameters) {
  if (spec.gate) gate_ = LinearBlock(*spec.gate, parameters);
}

Tensor FeedForwardBlock::forward(const Tensor& x) const {
  if (gate_) {
    const auto gated = kind_ == FeedForwardKind::kGeGlu ? ops::geglu : ops::swiglu;
    return down_.product(gated(gate_->forward(x), up_.forward(x)));
  }
  return down_.product(ops::gelu(up_.forward(x), gelu_form(kind_)));
}

}  // namespace athanor::inline blocks
