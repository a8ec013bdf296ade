#pragma once
// The size of what a gradient is made of, where that cancels: errors keep its size.
//
// Attention. Backward of the softmax takes two numbers of the size of dP = dO · Vᵀ from each other. For a token that
// sees itself alone, or whose output only reaches a loss with a small coefficient, all that is left of the gradients of
// queries and keys is what they round: with two tokens in a sequence, the last of which has no target, they are 600
// times smaller than elsewhere and their errors are not. dV = Pᵀ · dO is made of the same dO and does not cancel. By
// its size: a score's gradient is ‖dV‖ · rms(V), and that of the weights behind it has, as they have, the factor x; the
// key that it is multiplied with has the size of a normed vector, or rms(K), over the root of head_dim; where the query
// was normed, its gradient is divided by rms(Q). A norm's weight lacks x, whose size is √hidden.
//
// Routers whose weights are scaled to sum to 1. A weight w is a share of its sum, so backward takes the mean of the
// chosen experts' gradients from each: nothing is left of the only one (k = 1), and little where one has nearly all of
// the weight. What cancels, for each token and expert, is w · ⟨dY, Y⟩. The gradient of the experts' down projection Y =
// W · H is made of the same w · dY and of H: by its size, ‖dW‖ · ‖W‖ / √(F · D), and the router's weight has the factor
// x as well, √D.

#include "arch/inventory.h"
#include "config/run_config.h"
#include "train/verify/trace.h"

namespace athanor {

/// Of the gradients of `one`, by the parameters that both runs had before a step, which `layout` has recorded. All
/// outlive this.
class CancellingSizes {
 public:
  CancellingSizes(const RunConfig& small, const WholeTrace& layout, const WholeTrace& one)
      : config_(small), layout_(layout), one_(one) {}

  /// Euclidean norm over the whole tensor; 0 where nothing is known to cancel.
  double size(const ParameterSpec& spec, int64_t step) const;

 private:
  double of_attention(const ParameterSpec& spec, int64_t step) const;
  double of_router(const ParameterSpec& spec, int64_t step) const;
  double projected_size(const std::string& projection, int64_t step) const;

  const RunConfig& config_;
  const WholeTrace &layout_, &one_;
};

}  // namespace athanor
