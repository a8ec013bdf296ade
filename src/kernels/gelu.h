#pragma once
// GELU (Hendrycks and Gimpel 2016), x · Φ(x) with the normal distribution's Φ, and its approximation with tanh,
// x/2 · (1 + tanh(u)) = x · σ(2u) with u = √(2/π) · (x + 0.044715 x³).

#include <cstdint>

#include "kernels/element.h"

namespace athanor::kernels {

enum class GeluForm { kTanh, kExact };

/// Beyond ±this σ is 0 or 1, and the cube of the largest numbers is infinite.
constexpr float kGeluFar = 20;
constexpr float kGeluTwice = 1.5957691216f, kGeluCubic = 0.044715f;  // 2 · √(2/π)

ATHANOR_INLINE float gelu_near(float x) { return x < -kGeluFar ? -kGeluFar : (x > kGeluFar ? kGeluFar : x); }
ATHANOR_INLINE float gelu_sigmoid(float near) { return sigmoid(kGeluTwice * (near + kGeluCubic * near * near * near)); }

/// Φ(x) and the density φ(x).
struct Normal {
  float distribution, density;
};

/// Φ(−t) = exp(−t²/2) · u · p(u) with u = 1/(1 + 0.3t) for t ≥ 0. p was fitted to the smallest relative error for
/// t ≤ 14.5, which is 2.6e-8 with these numbers, less than half of fp32's roundoff.
ATHANOR_INLINE Normal normal_at(float x) {
  const float t = x < 0 ? -x : x, u = 1.0f / (1.0f + 0.3f * t), e = exp_fast(-0.5f * t * t);
  float p = -0.020623481f;
  p = p * u + 0.112435676f;
  p = p * u - 0.22821374f;
  p = p * u + 0.19178471f;
  p = p * u - 0.07942364f;
  p = p * u + 0.0961569f;
  p = p * u + 0.07838963f;
  p = p * u + 0.11023543f;
  p = p * u + 0.11957181f;
  p = p * u + 0.11968669f;
  const float tail = p * u * e;
  return {x < 0 ? tail : 1.0f - tail, 0.3989422804f * e};  // 1/√(2π)
}

template <GeluForm kForm>
ATHANOR_INLINE float gelu_of(float x) {
  const float near = gelu_near(x);
  return x * (kForm == GeluForm::kTanh ? gelu_sigmoid(near) : normal_at(near).distribution);
}

/// The derivative: Φ + x · φ, or σ + x · σ · (1 − σ) · 2u', u' = √(2/π) · (1 + 3 · 0.044715 x²).
template <GeluForm kForm>
ATHANOR_INLINE float gelu_slope(float x) {
  const float near = gelu_near(x);
  if constexpr (kForm == GeluForm::kExact) {
    const Normal normal = normal_at(near);
    return normal.distribution + near * normal.density;
  }
  const float s = gelu_sigmoid(near);
  return s + near * s * (1.0f - s) * (kGeluTwice * (1.0f + 3 * kGeluCubic * near * near));
}

/// Computes y[i] = gelu(x[i]) for n elements.
template <class T>
void gelu_forward(GeluForm form, const T* x, T* y, int64_t n);

/// Computes dx; it may be the same memory as dy or x.
template <class T>
void gelu_backward(GeluForm form, const T* dy, const T* x, T* dx, int64_t n);

// GEGLU (Shazeer 2020), a linear unit with GELU as its gate, in the approximation: gelu(gate) · up.

ATHANOR_INLINE float geglu_of(float gate, float up) { return gelu_of<GeluForm::kTanh>(gate) * up; }

struct GegluGradients {
  float dgate, dup;
};
ATHANOR_INLINE GegluGradients geglu_gradients(float dout, float gate, float up) {
  return {dout * up * gelu_slope<GeluForm::kTanh>(gate), dout * gelu_of<GeluForm::kTanh>(gate)};
}

/// Computes out[i] = gelu(gate[i]) · up[i] for n elements.
template <class T>
void geglu_forward(const T* gate, const T* up, T* out, int64_t n);

/// Computes dgate and dup; these may be the same memory as gate and up.
template <class T>
void geglu_backward(const T* dout, const T* gate, const T* up, T* dgate, T* dup, int64_t n);

}  // namespace athanor::kernels
