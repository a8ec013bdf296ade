#pragma once
// GELU in the approximation with tanh (Hendrycks and Gimpel 2016): x/2 · (1 + tanh(u)) = x · σ(2u) with
// u = √(2/π) · (x + 0.044715 x³).

#include <cstdint>

#include "kernels/element.h"

namespace athanor::kernels {

/// Beyond ±this σ is 0 or 1, and the cube of the largest numbers is infinite.
constexpr float kGeluFar = 20;
constexpr float kGeluTwice = 1.5957691216f, kGeluCubic = 0.044715f;  // 2 · √(2/π)

ATHANOR_INLINE float gelu_near(float x) { return x < -kGeluFar ? -kGeluFar : (x > kGeluFar ? kGeluFar : x); }
ATHANOR_INLINE float gelu_sigmoid(float near) { return sigmoid(kGeluTwice * (near + kGeluCubic * near * near * near)); }
ATHANOR_INLINE float gelu_of(float x) { return x * gelu_sigmoid(gelu_near(x)); }
/// The derivative: σ + x · σ · (1 − σ) · 2u', u' = √(2/π) · (1 + 3 · 0.044715 x²).
ATHANOR_INLINE float gelu_slope(float x) {
  const float near = gelu_near(x), s = gelu_sigmoid(near);
  return s + near * s * (1.0f - s) * (kGeluTwice * (1.0f + 3 * kGeluCubic * near * near));
}

/// Computes y[i] = gelu(x[i]) for n elements.
template <class T>
void gelu_forward(const T* x, T* y, int64_t n);

/// Computes dx; it may be the same memory as dy or x.
template <class T>
void gelu_backward(const T* dy, const T* x, T* dx, int64_t n);

}  // namespace athanor::kernels
