#include "blocks/feed_forward.h"

#include "ops/gelu.h"
#include "ops/swiglu.h"

namespace athanor::inline blocks {

FeedForwardBlock::FeedForwardBlock(const FeedForwardSpec& spec, const ParameterStore& parameters)
    : up_(spec.up, parameters), down_(spec.down, parameters) {
  if (spec.gate) gate_ = LinearBlock(*spec.gate, parameters);
}

Tensor FeedForwardBlock::forward(const Tensor& x) const {
  if (gate_) return down_.product(ops::swiglu(gate_->forward(x), up_.forward(x)));
  return down_.product(ops::gelu_tanh(up_.forward(x)));
}

}  // namespace athanor::inline blocks
