#include "blocks/feed_forward.h"

#include "ops/gelu.h"
#include "ops/swiglu.h"

namespace athanor::inline blocks {

FeedForwardBlock::FeedForwardBlock(const FeedForwardSpec& spec, const ParameterStore& parameters)
    : kind_(spec.kind), up_(spec.up, parameters), down_(spec.down, parameters) {
  if (spec.gate) gate_ = LinearBlock(*spec.gate, parameters);
}

Tensor FeedForwardBlock::forward(const Tensor& x) const {
  if (gate_) return down_.product(ops::swiglu(gate_->forward(x), up_.forward(x)));
  const auto form = kind_ == FeedForwardKind::kGelu ? ops::GeluForm::kExact : ops::GeluForm::kTanh;
  return down_.product(ops::gelu(up_.forward(x), form));
}

}  // namespace athanor::inline blocks
