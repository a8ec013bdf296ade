#pragma once
// The experts' computation step by step and without autograd, for callers that do other work between the steps:
// ops/experts.cpp does them one after the other, moe/dispatch sends tokens meanwhile. CPU tensors.
//
// Sizes: T tokens, K choices of each, R rows (choices of local experts), L local experts, D hidden, F intermediate.

#include <torch/custom_class.h>

#include "ops/experts.h"
#include "ops/grouped_matmul.h"

namespace athanor::ops {

/// The map between rows and choices. Rows are sorted by expert, within an expert by token. Made once, kept for
/// backward.
struct ExpertRoute {
  Tensor offsets;        ///< int64 [L + 1]: first row of each local expert, and the number of rows. On the host
  Tensor choice_of_row;  ///< int64: t · K + k for choice k of token t, −1 for padding; only num_rows() elements are set
  Tensor row_of_choice;  ///< int64 [T · K]; −1 if the expert is not local
  int64_t k = 1;         ///< K

  int64_t num_rows() const { return offsets.const_data_ptr<int64_t>()[offsets.numel() - 1]; }
  const int64_t* choices() const { return pointer<int64_t>(choice_of_row); }
  const int64_t* rows() const { return pointer<int64_t>(row_of_choice); }
  GroupOffsets groups() const;
};

/// @param x  the tokens from which rows will be made: the padding of rows depends on whether tiles multiply its type.
/// @param local_choices  in a played step, the choices of local experts; −1: their shares of all choices
///        (PlayedNumbers).
ExpertRoute make_expert_route(const Tensor& x, const Tensor& expert_ids_TK, int64_t first_local_expert,
                              int64_t num_local_experts, int64_t local_choices = -1);

/// The experts' weights as autograd keeps them: IValue::make_capsule(c10::make_intrusive<KeptExperts>(weights)).
struct KeptExperts : torch::CustomClassHolder {
  explicit KeptExperts(ExpertWeights w) : weights(std::move(w)) {}
  ExpertWeights weights;
};

/// Returns each row's token, [R, D]; zeros for padding.
Tensor gather_tokens(const Tensor& x_TD, const ExpertRoute& route);
/// Returns the sum of each token's rows, in the order of its choices, in fp32; the rows are multiplied by weights_TK if
/// that is defined. [tokens, D]
Tensor combine_rows(const Tensor& y_RD, const Tensor& weights_TK, const ExpertRoute& route, int64_t tokens);

struct ExpertRows {
  Tensor y_RD;            ///< down(…) of each row
  Tensor gate_RF, up_RF;  ///< before the activation, with biases; needed by backward. Without a gate the first is
                          ///< undefined, here and below
};
/// Computes the experts' outputs.
/// @param x_RD  is released as soon as it has been used.
/// @param weights_TK  if defined, multiplied in before the down projection.
ExpertRows multiply_rows(Tensor x_RD, const Tensor& weights_TK, const ExpertRoute& route, const ExpertWeights& experts);

struct ExpertRowGradients {
  Tensor dgate_RF, dup_RF;
  Tensor act_RF;  ///< the activation computed again, weighted: the down projection's gradient is dy_RDᵀ · act_RF
};
/// Backward through down projection and activation. dy_RD is not weighted, on whichever side of the down projection the
/// weight was: ⟨down(a), dy⟩ = ⟨a, downᵀ(dy)⟩.
/// @param weights_TK   must be defined.
/// @param dweights_TK  fp32; set for choices that have a row, unchanged for others.
ExpertRowGradients backward_rows(const ExpertRows& rows, const Tensor& dy_RD, const Tensor& weights_TK,
                                 const ExpertRoute& route, const ExpertWeights& experts, const Tensor& dweights_TK);

/// Add the gradients of the experts' weights and biases into Weight::grad: those of the down projection, and those of
/// gate and up.
/// @param weights_TK  as the choices of `route` are numbered.
void add_down_gradients(const ExpertRowGradients& rows, const Tensor& dy_RD, const Tensor& weights_TK,
                        const ExpertRoute& route, const ExpertWeights& experts);
void add_gate_up_gradients(const ExpertRowGradients& rows, const Tensor& x_RD, const ExpertRoute& route,
                           const ExpertWeights& experts);

/// Writes the gradient of each row's token into dx_RD, which may not share memory with `rows`.
void input_gradients(const ExpertRowGradients& rows, const ExpertRoute& route, const ExpertWeights& experts,
                     const Tensor& dx_RD);

}  // namespace athanor::ops
