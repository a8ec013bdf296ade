#pragma once
// The computation of a rank on the tokens that came to it: its experts, chunk by chunk, and at the end the gradients of
// the experts' weights, over all chunks at once in an order that does not depend on chunks.

#include <memory>

#include "moe/dispatch_exchange.h"
#include "ops/experts.h"

namespace athanor::moe {

/// DispatchForm makes the one for the host or for a device, where the host waits for nothing.
class LocalExperts {
 public:
  virtual ~LocalExperts() = default;

  /// Returns the partial sums of a chunk's tokens x_nD over our experts.
  /// @param keep  if true, keeps the tensors that backward needs; then chunks must come in order.
  virtual Tensor forward(const Received& received, int64_t chunk, const Tensor& x_nD, bool keep) = 0;

  /// Computes backward of the same chunks, in the same order. Returns the partial sums of the gradients of a chunk's
  /// tokens.
  /// @param dweights_NK  fp32 zeros, of all chunks; set for choices of our experts.
  virtual Tensor backward(const Received& received, int64_t chunk, const Tensor& dy_nD, const Tensor& dweights_NK) = 0;

  /// Adds the gradients of the experts' weights into Weight::grad. To be called after the last chunk's backward.
  /// @param x_ND, dy_ND  the received tokens and gradients of all chunks.
  virtual void add_weight_gradients(const Received& received, const Tensor& x_ND, const Tensor& dy_ND) = 0;
};

}  // namespace athanor::moe
