#pragma once
// A linear layer whose matrix tensor ranks may share, and its bias.

#include "arch/blocks/linear.h"
#include "ops/affine.h"
#include "ops/linear.h"
#include "parallel/parameters.h"

namespace athanor::inline blocks {

class LinearBlock {
 public:
  /// @param parameters  those of this rank: with tensor ranks, its part of the matrix, and of the bias if that is
  ///        divided too.
  LinearBlock(const LinearSpec& spec, const ParameterStore& parameters)
      : weight_(parameters.weight(spec.weight())), bias_(spec.has_bias ? parameters.weight(spec.bias()) : Weight{}) {}

  /// x [..., in] → x Wᵀ + bias [..., out].
  Tensor forward(const Tensor& x) const { return add_bias(product(x)); }

  // Where tensor ranks divide the columns of W, the bias is added once, to the sum over the ranks.

  /// x Wᵀ.
  Tensor product(const Tensor& x) const { return ops::linear(x, weight_); }
  /// Returns y with the bias; y itself if there is none.
  Tensor add_bias(const Tensor& y) const { return bias_.defined() ? ops::affine(y, {}, bias_) : y; }

  at::TensorOptions options() const { return weight_.value.options(); }

 private:
  Weight weight_, bias_;
};

}  // namespace athanor::inline blocks
