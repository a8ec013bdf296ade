#pragma once
// The dense feed-forward of a layer, and all shared experts of a sparse one together.

#include "arch/blocks/feed_forward.h"
#include "ops/tensor.h"
#include "parallel/parameters.h"

namespace athanor::inline blocks {

class FeedForwardBlock {
 public:
  /// @param parameters  those of this rank: with tensor ranks, its part of the inner columns.
  FeedForwardBlock(const FeedForwardSpec& spec, const ParameterStore& parameters);

  /// x [..., D] → [..., D]; with several tensor ranks, a partial sum (leave_tensor_parallel adds them up).
  Tensor forward(const Tensor& x) const;

 private:
  Weight gate_, up_, down_;
};

}  // namespace athanor::inline blocks
