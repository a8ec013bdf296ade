#pragma once
// If a gradient is the difference of terms that nearly cancel, its errors keep the size of the terms, so a bound must
// be relative to that size. This header estimates it. Below, dX is the gradient of X, x a token's input of the layer, P
// the probabilities of attention, O its output, and Q, K, V the queries, keys and values.
//
// Attention. Backward of the softmax subtracts two numbers of the size of dP = dO · Vᵀ from each other. For a token
// that sees only itself, or whose output reaches a loss only with a small coefficient, the gradients of queries and
// keys consist of nothing but the rounding of these numbers. With two tokens in a sequence, the last of which has no
// target, they are 600 times smaller than elsewhere, but their errors are not. dV = Pᵀ · dO is made from the same dO
// and does not cancel, so the sizes follow from it. A score's gradient has the size ‖dV‖ · rms(V). The gradients of the
// weights that make Q and K have the factor x in addition, as has that of the weights that make V. The key with which a
// query's score is computed has the size of a normed vector, or rms(K), divided by √head_dim. If the query was normed,
// its gradient is divided by rms(Q). The gradient of a norm's weight lacks the factor x, whose size is √hidden.
//
// Routers whose weights are scaled to sum to 1. A weight w is a share of its sum, so backward subtracts the mean of the
// chosen experts' gradients from each. Nothing is left if there is only one expert (k = 1), and little if one has
// nearly all of the weight. The term that cancels, for each token and expert, is w · ⟨dY, Y⟩, where Y = W · H is the
// expert's output, W its down projection [D, F] and H its input of width F. dW is made from the same w · dY and from H,
// so the size of the term is ‖dW‖ · ‖W‖ / √(F · D), and the gradient of the router's weight has the factor x in
// addition, √D.

#include <string>
#include <utility>

#include "arch/inventory.h"
#include "config/run_config.h"
#include "verify/trace.h"

namespace athanor::inline verify {

/// Estimates the sizes from the gradients of `one` (the reference's run) and from the parameters that both runs had
/// before a step, which `layout` has recorded. `small`, `layout` and `one` must outlive this object.
class CancellingSizes {
 public:
  /// @param kind  of the gradients, as WholeTrace::values takes it.
  CancellingSizes(const RunConfig& small, const WholeTrace& layout, const WholeTrace& one, std::string kind)
      : config_(small), layout_(layout), one_(one), kind_(std::move(kind)) {}

  /// Returns the Euclidean norm of the cancelling terms over the whole parameter; 0 if nothing is known to cancel.
  double size(const ParameterSpec& spec, int64_t step) const;

 private:
  double of_attention(const ParameterSpec& spec, int64_t step) const;
  double of_router(const ParameterSpec& spec, int64_t step) const;
  double projected_size(const std::string& projection, int64_t step) const;

  const RunConfig& config_;
  const WholeTrace &layout_, &one_;
  std::string kind_;
};

}  // namespace athanor::inline verify
