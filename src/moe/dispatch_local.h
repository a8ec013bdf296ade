#pragma once
// The computation of a rank on the tokens that came to it: its experts, chunk by chunk, and at the end the gradients of
// the experts' weights, over all chunks at once in an order that does not depend on chunks.

#include <vector>

#include "moe/dispatch_exchange.h"
#include "ops/expert_rows.h"

namespace athanor::moe {

class LocalExperts {
 public:
  /// @param first  id of the first of `experts`, as ids_NK names it.
  LocalExperts(const ops::ExpertWeights& experts, int64_t first, ops::CombineWeights combine);

  /// Returns the partial sums of a chunk's tokens x_nD over our experts.
  /// @param keep  if true, keeps the tensors that backward needs; then chunks must come in order.
  Tensor forward(const Received& received, int64_t chunk, const Tensor& x_nD, bool keep);

  /// Computes backward of the same chunks, in the same order. Returns the partial sums of the gradients of a chunk's
  /// tokens.
  /// @param dweights_NK  fp32 zeros, of all chunks; set for choices of our experts.
  Tensor backward(const Received& received, int64_t chunk, const Tensor& dy_nD, const Tensor& dweights_NK);

  /// Adds the gradients of the experts' weights into Weight::grad. To be called after the last chunk's backward.
  /// @param x_ND, dy_ND  the received tokens and gradients of all chunks.
  void add_weight_gradients(const Tensor& x_ND, const Tensor& dy_ND);

 private:
  // A chunk between forward and backward; its y is released.
  struct Pass {
    ops::ExpertRoute route;
    ops::ExpertRows rows;
  };

  void collect(const Received& received, int64_t chunk, const Pass& pass, ops::ExpertRowGradients rows);

  ops::ExpertWeights experts_;
  int64_t first_, num_;
  bool weigh_before_down_;
  std::vector<Pass> passes_;
  ops::ExpertRoute all_route_;        // rows of all chunks
  ops::ExpertRowGradients all_rows_;  // likewise
};

}  // namespace athanor::moe
