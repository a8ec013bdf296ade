#pragma once
// Soft caps of logits (Gemma Team 2024, §2): cap · tanh(x / cap), which is x where x is small and never beyond ±cap.

#include <cstdint>

#include "kernels/element.h"

namespace athanor::kernels {

/// Returns tanh x to 5 units of 2^-24 of it. Below 0.625, where 1 − e would cancel, it is x + x³ · p(x²) with a p that
/// was fitted to the smallest relative error, 2^-27.8.
ATHANOR_INLINE float tanh_fast(float x) {
  const float size = x < 0 ? -x : x, square = x * x;
  float p = -0.005717018f;
  p = p * square + 0.02065056f;
  p = p * square - 0.05374349f;
  p = p * square + 0.13331491f;
  p = p * square - 0.33333284f;
  const float e = exp_fast(-2.0f * size), far = (1.0f - e) / (1.0f + e);
  return size < 0.625f ? x + x * square * p : (x < 0 ? -far : far);
}

ATHANOR_INLINE float soft_cap_of(float x, float cap) { return cap * tanh_fast(x / cap); }

/// The derivative: 1 − tanh².
ATHANOR_INLINE float soft_cap_slope(float x, float cap) {
  const float t = tanh_fast(x / cap);
  return 1.0f - t * t;
}

/// Computes y[i] = cap · tanh(x[i] / cap) for n elements; y may be x.
template <class T>
void soft_cap_forward(const T* x, T* y, int64_t n, float cap);

/// Computes dx; it may be the same memory as dy or x.
template <class T>
void soft_cap_backward(const T* dy, const T* x, T* dx, int64_t n, float cap);

}  // namespace athanor::kernels
