#pragma once
// What happens between an expert's matrix products: SwiGLU, times the router's probability where that is wanted.
// Source: Optimus §3.1, Algorithm 1, lines 78, 91 and 101–110.

#include <cstdint>

#include "kernels/element.h"

namespace athanor::kernels {

/// act[r] = silu(gate[r]) · up[r], times weights[choice_of_row[r]] if `weights` is not null; rounded once. Rows [begin,
/// end) of [rows, width]; a row of padding (choice −1) becomes zero.
template <class T>
void expert_activation(const T* gate, const T* up, const float* weights, const int64_t* choice_of_row, T* act,
                       int64_t begin, int64_t end, int64_t width);

/// Backward of w · silu(gate) · up for rows [begin, end), from `dact`, the gradient of that product before it met the
/// probability w: whether w was applied before or after the down projection, ⟨down(a), dy⟩ = ⟨a, downᵀ(dy)⟩, so the
/// expert outputs need not be kept.
/// @param dact      becomes dgate in place.
/// @param act       gets w · silu(gate) · up again, for the gradient of the down projection.
/// @param dweights  [choices]: dweights[choice_of_row[r]] = Σ silu(gate) · up · dact, fp32 in the order of the lanes.
template <class T>
void expert_activation_backward(const T* gate, const T* up, T* dact, T* dup, T* act, const float* weights,
                                const int64_t* choice_of_row, float* dweights, int64_t begin, int64_t end,
                                int64_t width);

}  // namespace athanor::kernels
