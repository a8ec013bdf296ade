#pragma once
// The experts' computation step by step and without autograd, for whoever has something to do between the steps: ops/
// experts.cpp does them one after the other, moe/dispatch sends tokens meanwhile. CPU tensors.
//
// T tokens, K choices of each, R rows (choices of local experts), L local experts, D hidden, F intermediate.

#include "ops/experts.h"
#include "ops/grouped_matmul.h"

namespace athanor::ops {

/// Which row belongs to which choice, sorted by expert, within an expert by token. Made once, kept for backward.
struct ExpertRoute {
  Tensor offsets;        ///< int64 [L + 1]
  Tensor choice_of_row;  ///< int64, t · K + k; −1 for padding
  Tensor row_of_choice;  ///< int64 [T · K]; −1 where the expert is not local
  int64_t k = 1;

  int64_t num_rows() const { return offsets.const_data_ptr<int64_t>()[offsets.numel() - 1]; }
  const int64_t* choices() const { return choice_of_row.const_data_ptr<int64_t>(); }
  const int64_t* rows() const { return row_of_choice.const_data_ptr<int64_t>(); }
  GroupOffsets groups() const;
};

/// @param x  of which rows will be made: on whether tiles multiply its type depends how rows are padded.
ExpertRoute make_expert_route(const Tensor& x, const Tensor& expert_ids_TK, int64_t first_local_expert,
                              int64_t num_local_experts);

/// Each row's token; zeros for padding. [R, D]
Tensor gather_tokens(const Tensor& x_TD, const ExpertRoute& route);
/// Each token's rows added in the order of its choices, in fp32; times weights_TK where that is defined. [tokens, D]
Tensor combine_rows(const Tensor& y_RD, const Tensor& weights_TK, const ExpertRoute& route, int64_t tokens);

struct ExpertRows {
  Tensor y_RD;            ///< down(…) of each row
  Tensor gate_RF, up_RF;  ///< before the activation: what backward needs
};
/// @param x_RD  is let go as soon as it was used. @param weights_TK  defined: multiplies before the down projection.
ExpertRows multiply_rows(Tensor x_RD, const Tensor& weights_TK, const ExpertRoute& route, const ExpertWeights& experts);

struct ExpertRowGradients {
  Tensor dgate_RF, dup_RF;
  Tensor act_RF;  ///< the activation again, weighted: the down projection's gradient is dy_RDᵀ · act_RF
};
/// Backward through down projection and activation. dy_RD is not weighted, on whichever side of the down projection the
/// weight was: ⟨down(a), dy⟩ = ⟨a, downᵀ(dy)⟩.
/// @param dweights_TK  fp32; set where a choice has a row.
ExpertRowGradients backward_rows(const ExpertRows& rows, const Tensor& dy_RD, const Tensor& weights_TK,
                                 const ExpertRoute& route, const ExpertWeights& experts, const Tensor& dweights_TK);

/// Into dx_RD, which may not be one of the gradients.
void input_gradients(const ExpertRowGradients& rows, const ExpertRoute& route, const ExpertWeights& experts,
                     const Tensor& dx_RD);

}  // namespace athanor::ops
