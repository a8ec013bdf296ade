#pragma once
// The expert computation of a sparse MoE layer, without router and communication. Source: Optimus §3.1, Algorithm 1,
// stages 2–5.

#include <functional>
#include <vector>

#include "base/combine_weights.h"
#include "base/gated_unit.h"
#include "ops/tensor.h"

namespace athanor::ops {

/// What experts compute, without their sizes.
struct ExpertForm {
  bool is_gated = true;     ///< with three matrices, not two
  bool has_biases = false;  ///< each matrix has one
  GatedUnit unit = {};

  int64_t num_matrices() const { return is_gated ? 3 : 2; }
};

/// Weights of the experts held here. L local experts, F intermediate, D hidden.
struct ExpertWeights {
  Weight gate_LFD;  ///< undefined for experts of two matrices: down_e(gelu(up_e x[t])), GELU by its form with tanh
  Weight up_LFD, down_LDF;
  Weight gate_bias_LF = {}, up_bias_LF = {}, down_bias_LD = {};  ///< one for each matrix, or none
  /// With tensor ranks down_bias_LD has this rank's share of the outputs: D / ranks from this one on.
  int64_t first_output = 0;
  GatedUnit unit = {};  ///< between the products

  bool is_gated() const { return gate_LFD.defined(); }
  bool has_biases() const { return down_bias_LD.defined(); }
  int64_t num_experts() const { return down_LDF.value.size(0); }
  /// Returns those that there are, in the order above.
  std::vector<Weight> all() const;
  /// Returns the same with these values, in the order of all(), and no gradients.
  ExpertWeights with_values(const std::vector<Tensor>& values) const;
};

/// Returns experts of this form with the weights that `make` returns for each shape, gate, up and down in this order
/// and then their biases.
ExpertWeights make_experts(const ExpertForm& form, int64_t experts, int64_t intermediate, int64_t hidden,
                           const std::function<Weight(at::IntArrayRef)>& make);

/// Returns y [T, D] with y[t] = Σ_k weights[t, k] · down_e(silu(gate_e x[t]) · up_e x[t]), or with another unit than
/// SwiGLU and with biases of the three products, where e = expert_ids[t, k], over the experts in [first_local_expert,
/// first_local_expert + num_local_experts); other ids, also negative ones, are ignored (Algorithm 1, lines 29 and 59).
///
/// Keeps x, the route and the gate and up pre-activations for backward; the activation is computed again. Weight
/// gradients are summed in fp32. An expert without tokens gets exactly zero gradient. The order of every sum is fixed
/// (an expert's rows by token, a token's output by choice), so bits depend neither on threads nor on the run.
/// @param x_TD           tokens, bf16 or fp32.
/// @param weights_TK     fp32; gets its gradient.
/// @param expert_ids_TK  int64, global; no token names an expert twice.
Tensor experts(const Tensor& x_TD, const Tensor& weights_TK, const Tensor& expert_ids_TK, const ExpertWeights& experts,
               int64_t first_local_expert, int64_t num_local_experts,
               CombineWeights combine = CombineWeights::kAfterDown);

namespace portable {
/// Loops over experts in torch ops; autograd may differentiate the values of `experts`, whose gradients are not read.
Tensor experts(const Tensor& x_TD, const Tensor& weights_TK, const Tensor& expert_ids_TK, const ExpertWeights& experts,
               int64_t first_local_expert, int64_t num_local_experts);
}  // namespace portable

}  // namespace athanor::ops
