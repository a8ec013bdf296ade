#pragma once
// What a rank computes of the tokens that came to it: its experts, chunk by chunk, and their weights' gradients at the
// end, over all chunks at once in an order that chunks do not change.

#include <vector>

#include "moe/dispatch_exchange.h"
#include "ops/expert_rows.h"

namespace athanor::moe {

class LocalExperts {
 public:
  /// @param first  of the global numbers of `experts`.
  LocalExperts(const ops::ExpertWeights& experts, int64_t first, ops::CombineWeights combine);

  /// A chunk's tokens x_nD → their partial sums over our experts. @param keep  what backward needs.
  Tensor forward(const Received& received, int64_t chunk, const Tensor& x_nD, bool keep);

  /// The same chunks once more, in the same order: dy_nD → the partial sums of dx.
  /// @param dweights_NK  fp32 zeros, of all chunks; set where a choice is ours.
  Tensor backward(const Received& received, int64_t chunk, const Tensor& dy_nD, const Tensor& dweights_NK);

  /// After the last chunk's backward: adds into the experts' buckets.
  void add_weight_gradients(const Tensor& x_ND, const Tensor& dy_ND);

 private:
  // A chunk between forward and backward; its y is let go.
  struct Pass {
    ops::ExpertRoute route;
    ops::ExpertRows rows;
  };

  Tensor weights_before(const Tensor& weights_NK) const;
  void collect(const Received& received, int64_t chunk, const Pass& pass, ops::ExpertRowGradients rows);

  ops::ExpertWeights experts_;
  int64_t first_, num_;
  bool weigh_before_down_;
  std::vector<Pass> passes_;
  ops::ExpertRoute all_route_;        // rows of all chunks
  ops::ExpertRowGradients all_rows_;  // likewise
};

}  // namespace athanor::moe
