#pragma once
// The computation between an expert's matrix products: a gated unit, optionally multiplied by the router's probability,
// and the biases of the products. Source: Optimus §3.1, Algorithm 1, lines 78, 91 and 101–110.

#include <cstdint>

#include "base/gated_unit.h"
#include "kernels/element.h"

namespace athanor::kernels {

/// Computes act[r] = silu(gate[r]) · up[r], or another gated unit, times weights[choice_of_row[r]] if `weights` is not
/// null, rounded once, for the rows [begin, end) of [rows, width]. A row of padding (choice −1) becomes zero. A choice
/// is an index into [tokens, k] (routing.h).
template <class T>
void expert_activation(const T* gate, const T* up, const float* weights, const int64_t* choice_of_row, T* act,
                       int64_t begin, int64_t end, int64_t width, const GatedUnit& unit = {});

/// Computes the backward of w · silu(gate) · up, or of another gated unit, for the rows [begin, end), with w =
/// weights[choice_of_row[r]]; `weights` may not be null. It holds for a probability w applied before or after the down
/// projection, because ⟨down(a), dy⟩ = ⟨a, downᵀ(dy)⟩; therefore the expert outputs need not be kept. Rows of padding
/// become zero. A clamped value has no gradient.
/// @param dact      the gradient of that product without its factor w; dgate replaces it in place.
/// @param act       set to w · silu(gate) · up again, for the gradient of the down projection.
/// @param dweights  [tokens, k]: dweights[choice_of_row[r]] = Σ silu(gate) · up · dact, in fp32 in the order of the
///                  lanes (element.h). Choices without a row are not written.
template <class T>
void expert_activation_backward(const T* gate, const T* up, T* dact, T* dup, T* act, const float* weights,
                                const int64_t* choice_of_row, float* dweights, int64_t begin, int64_t end,
                                int64_t width, const GatedUnit& unit = {});

/// As expert_activation, with gelu(up) in the approximation with tanh: between two matrices, of an expert without a
/// gate.
template <class T>
void expert_gelu(const T* up, const float* weights, const int64_t* choice_of_row, T* act, int64_t begin, int64_t end,
                 int64_t width);
/// As expert_activation_backward. @param dact  dup replaces it in place.
template <class T>
void expert_gelu_backward(const T* up, T* dact, T* act, const float* weights, const int64_t* choice_of_row,
                          float* dweights, int64_t begin, int64_t end, int64_t width);

/// The biases of a product of each expert.
template <class T>
struct ExpertBias {
  const T* values;           ///< [experts, columns]
  const int64_t* first_row;  ///< [experts + 1]: the first row of each expert
  int64_t experts, columns;
  int64_t first_column = 0;  ///< the column of the rows to which the first number belongs

  /// Returns the expert of a row.
  int64_t expert_of(int64_t row) const;
};

/// Adds the bias of its expert to each of the rows [begin, end) of [rows, width], times weights[choice_of_row[r]] if
/// `weights` is not null. Rows of padding stay as they are.
template <class T>
void add_expert_bias(const ExpertBias<T>& bias, const float* weights, const int64_t* choice_of_row, T* rows,
                     int64_t begin, int64_t end, int64_t width);

/// Adds ⟨bias, dy[r]⟩ to dweights[choice_of_row[r]] for the rows [begin, end) of [rows, width]: the gradient of the
/// factor that add_expert_bias has.
template <class T>
void expert_bias_backward(const ExpertBias<T>& bias, const T* dy, const int64_t* choice_of_row, float* dweights,
                          int64_t begin, int64_t end, int64_t width);

}  // namespace athanor::kernels
