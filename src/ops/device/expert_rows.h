#pragma once
// ops/expert_rows.h for tensors of a device that has our kernels: the experts' computation step by step, without
// autograd. The host waits for nothing: how many rows there are is known on the device only, and tensors over rows have
// memory for the largest number that there can be. What is after the last row is neither written nor read.

#include "kernels/cuda/routing.h"
#include "ops/device/grouped.h"
#include "ops/expert_rows.h"

namespace athanor::ops::device {

/// The row of each choice, sorted by expert, within an expert by token; int64 on the device. Made once, kept for
/// backward: routing is never computed again.
struct RowRoute {
  Groups groups;
  Tensor choice_of_row;  ///< [most rows]; −1 for padding
  Tensor row_of_choice;  ///< [T · K]; −1 if the expert is not local
  int64_t k = 1;

  int64_t most_rows() const { return choice_of_row.numel(); }
  kernels::cuda::ExpertRows rows() const;
};

/// @param most_choices  no fewer than the choices of local experts.
RowRoute make_row_route(const Tensor& expert_ids_TK, int64_t first_local_expert, int64_t num_local_experts,
                        int64_t most_choices);

/// Returns each row's token; zeros for padding.
Tensor gather_rows(const Tensor& x_TD, const RowRoute& route);
/// Returns the sum of each token's rows of y + z, weighted if weights_TK is defined; z may be undefined.
Tensor combine_rows(const Tensor& y_RD, const Tensor& z_RD, const Tensor& weights_TK, const RowRoute& route,
                    int64_t tokens);

/// Computes ops::multiply_rows.
ExpertRows multiply_rows(Tensor x_RD, const Tensor& weights_TK, const RowRoute& route, const ExpertWeights& experts);
/// Computes ops::backward_rows.
ExpertRowGradients backward_rows(const ExpertRows& rows, const Tensor& dy_RD, const Tensor& weights_TK,
                                 const RowRoute& route, const ExpertWeights& experts, const Tensor& dweights_TK);
/// Returns the gradients of the tokens. The terms of gate and up are added unrounded.
Tensor input_gradients(const ExpertRowGradients& rows, const RowRoute& route, const ExpertWeights& experts,
                       int64_t tokens);
/// Adds the gradients of the experts' weights and biases into Weight::grad.
/// @param weights_TK  as the choices of `route` are numbered; read if there are biases.
void add_weight_gradients(const ExpertRowGradients& rows, const Tensor& x_RD, const Tensor& dy_RD,
                          const Tensor& weights_TK, const RowRoute& route, const ExpertWeights& experts);

}  // namespace athanor::ops::device
