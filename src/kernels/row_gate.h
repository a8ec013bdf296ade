#pragma once
// A gate for each row: σ(gate) · x, of the shared expert (Qwen2-MoE).

#include <cstdint>

#include "kernels/element.h"

namespace athanor::kernels {

/// Computes y[r] = σ(gate[r]) · x[r] for `rows` rows of `width`.
template <class T>
void row_gate_forward(const T* x, const T* gate, T* y, int64_t rows, int64_t width);

/// Computes dx[r] = σ · dy[r], and dgate[r] = σ · (1 − σ) · Σ dy[r] · x[r].
template <class T>
void row_gate_backward(const T* dy, const T* x, const T* gate, T* dx, T* dgate, int64_t rows, int64_t width);

}  // namespace athanor::kernels
