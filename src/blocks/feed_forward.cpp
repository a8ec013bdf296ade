#include "blocks/feed_forward.h"

#include "ops/linear.h"
#include "ops/swiglu.h"

namespace athanor::inline blocks {

FeedForwardBlock::FeedForwardBlock(const FeedForwardSpec& spec, const ParameterStore& parameters)
    : gate_(parameters.weight(spec.gate.weight())), up_(parameters.weight(spec.up.weight())),
      down_(parameters.weight(spec.down.weight())) {}

Tensor FeedForwardBlock::forward(const Tensor& x) const {
  return ops::linear(ops::swiglu(ops::linear(x, gate_), ops::linear(x, up_)), down_);
}

}  // namespace athanor::inline blocks
