#pragma once
// A sparse layer for other programs: the experts, and a whole layer with its router, as functions of tensors that
// libtorch's autograd differentiates (Optimus §3.1 calls it a drop-in). One process holds all experts.
//
// This header is installed, and programs that include it compile with libtorch's headers.

#include <torch/types.h>

namespace athanor::inline blocks {

/// Returns y [T, D] with y[t] = Σ_k weights[t, k] · down_e(silu(gate_e x[t]) · up_e x[t]), e = ids[t, k]: ops::experts,
/// which computes only chosen experts. Gradients of x, weights and all experts' matrices are those of autograd; the
/// matrices' are summed in fp32. A graph goes backward once, and gradients of gradients are refused. The bits depend on
/// no number of threads.
/// @param x_TD           bf16 or fp32, as the matrices.
/// @param weights_TK     fp32.
/// @param ids_TK         int64; no token names an expert twice. Negative ids are ignored.
/// @param gate_up_EGD    [E, 2 · F, D]: the rows of an expert's gate come before those of its up projection, as in
///                       `transformers`. @param down_EDF  [E, D, F].
/// @throws Error for tensors of other types or shapes.
torch::Tensor expert_layer(const torch::Tensor& x_TD, const torch::Tensor& weights_TK, const torch::Tensor& ids_TK,
                           const torch::Tensor& gate_up_EGD, const torch::Tensor& down_EDF);

struct SparseLayerOptions {
  int64_t choices = 1;          ///< experts of each token
  bool norm_topk_prob = false;  ///< their probabilities are scaled to sum to 1
};

struct SparseLayerResult {
  torch::Tensor y;                 ///< as x
  torch::Tensor router_logits_TE;  ///< before the softmax, for a loss that balances
};

/// Returns the experts' sum for x [..., D], weighted by the softmax of x · router_EDᵀ, as OLMoE's block in
/// `transformers` does.
SparseLayerResult sparse_layer(const torch::Tensor& x, const torch::Tensor& router_ED, const torch::Tensor& gate_up_EGD,
                               const torch::Tensor& down_EDF, const SparseLayerOptions& options);

}  // namespace athanor::inline blocks
