#pragma once
// The size of the terms that a gradient is the difference of, if they cancel: the errors keep the size of the terms.
//
// Attention. Backward of the softmax takes two numbers of the size of dP = dO · Vᵀ from each other. For a token that
// sees only itself, or whose output reaches a loss only with a small coefficient, the gradients of queries and keys
// consist of nothing but the rounding of these numbers: with two tokens in a sequence, the last of which has no target,
// they are 600 times smaller than elsewhere, but their errors are not. dV = Pᵀ · dO is made from the same dO and does
// not cancel, so the sizes follow from it: a score's gradient is ‖dV‖ · rms(V), and the gradient of the weights behind
// it also has, as theirs has, the factor x; the key that it is multiplied with has the size of a normed vector, or
// rms(K), divided by the root of head_dim; if the query was normed, its gradient is divided by rms(Q). A norm's weight
// lacks x, whose size is √hidden.
//
// Routers whose weights are scaled to sum to 1. A weight w is a share of its sum, so backward subtracts the mean of the
// chosen experts' gradients from each: nothing is left if there is only one (k = 1), and little if one has nearly all
// of the weight. The term that cancels, for each token and expert, is w · ⟨dY, Y⟩. The gradient of the experts' down
// projection Y = W · H is made from the same w · dY and from H: its size is ‖dW‖ · ‖W‖ / √(F · D), and the router's
// weight has the factor x as well, √D.

#include "arch/inventory.h"
#include "config/run_config.h"
#include "train/verify/trace.h"

namespace athanor {

/// The sizes for the gradients of `one`, with the parameters that both runs had before a step, which `layout` has
/// recorded. All arguments must outlive this object.
class CancellingSizes {
 public:
  CancellingSizes(const RunConfig& small, const WholeTrace& layout, const WholeTrace& one)
      : config_(small), layout_(layout), one_(one) {}

  /// Returns the Euclidean norm over the whole tensor; 0 if nothing is known to cancel.
  double size(const ParameterSpec& spec, int64_t step) const;

 private:
  double of_attention(const ParameterSpec& spec, int64_t step) const;
  double of_router(const ParameterSpec& spec, int64_t step) const;
  double projected_size(const std::string& projection, int64_t step) const;

  const RunConfig& config_;
  const WholeTrace &layout_, &one_;
};

}  // namespace athanor
