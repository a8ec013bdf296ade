#pragma once
// Rotary position embedding (Su et al. 2021) in the half-split form of GPT-NeoX, OLMo and Llama.

#include <cstdint>

#include "kernels/element.h"

namespace athanor::kernels {

/// Rotates each pair (x[i], x[i + head_dim/2]) of every head by its token's angle.
/// x, y [tokens, num_heads, head_dim]; cos, sin [tokens, head_dim/2], already gathered by position. y may be x.
/// @param direction  +1 in forward, −1 in backward.
template <class T>
void rope(const T* x, T* y, const float* cos, const float* sin, int64_t tokens, int64_t num_heads, int64_t head_dim,
          float direction);

}  // namespace athanor::kernels
