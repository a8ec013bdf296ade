#pragma once
// The dense feed-forward of a layer, and all shared experts of a sparse one together.

#include <optional>

#include "arch/blocks/feed_forward.h"
#include "blocks/linear.h"
#include "ops/gelu.h"

namespace athanor::inline blocks {

/// Returns the form of GELU of a feed-forward without a gate.
inline ops::GeluForm gelu_form(FeedForwardKind kind) {
  return kind == FeedForwardKind::kGelu ? ops::GeluForm::kExact : ops::GeluForm::kTanh;
}

class FeedForwardBlock {
 public:
  /// @param parameters  those of this rank: with tensor ranks, its part of the inner columns.
  FeedForwardBlock(const FeedForwardSpec& spec, const ParameterStore& parameters);

  /// x [..., D] → [..., D] without the last bias; with several tensor ranks, a partial sum (leave_tensor_parallel adds
  /// them up).
  Tensor forward(const Tensor& x) const;
  /// Returns the sum over tensor ranks with the last bias.
  Tensor add_bias(const Tensor& sum) const { return down_.add_bias(sum); }

 private:
  FeedForwardKind kind_;
  std::optional<LinearBlock> gate_;
  LinearBlock up_, down_;
};

}  // namespace athanor::inline blocks
