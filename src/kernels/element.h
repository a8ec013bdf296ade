#pragma once
// The element types that kernels read and write. Arithmetic inside is fp32; a result is rounded once, to nearest even.

#include <cstdint>

#include "base/half.h"

// ATHANOR_EACH_ISA compiles a function once for each x86-64 level; the loader chooses one. Loops have a fixed number of
// lanes and are compiled without contraction, so that every level gives the same bits. Sanitizers instrument the
// resolver, which runs before they are ready, so builds with them have one plain version.
#ifdef ATHANOR_EACH_ISA  // a test compiles a single level
#elif defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define ATHANOR_EACH_ISA __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define ATHANOR_EACH_ISA
#endif
#ifdef __CUDACC__
#define ATHANOR_INLINE __host__ __device__ inline __attribute__((always_inline))
#else
#define ATHANOR_INLINE inline __attribute__((always_inline))
#endif

namespace athanor::kernels {

/// Storage of a bfloat16.
struct Bf16 {
  uint16_t bits;
};

ATHANOR_INLINE float load(float x) { return x; }
ATHANOR_INLINE float load(Bf16 x) { return bf16_to_float(x.bits); }
ATHANOR_INLINE void store(float& to, float x) { to = x; }
ATHANOR_INLINE void store(Bf16& to, float x) { to.bits = bf16_from_float(x); }

/// Number of independent partial sums: one AVX-512 register or two of AVX2, with the same order of additions on both.
constexpr int kLanes = 16;

/// Returns the sum of the lanes, added as a binary tree.
ATHANOR_INLINE float sum_lanes(float (&lanes)[kLanes]) {
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int l = 0; l < width; ++l) lanes[l] += lanes[l + width];
  }
  return lanes[0];
}

/// Returns Σ f(i) over [0, n), added in the fixed order of the lanes.
template <class F>
ATHANOR_INLINE float sum_over(int64_t n, F f) {
  float lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int l = 0; l < kLanes; ++l) lanes[l] += f(i + l);
  }
  for (int l = 0; i + l < n; ++l) lanes[l] += f(i + l);
  return sum_lanes(lanes);
}

/// Returns e^x to 2 ULP for x <= 0, or 0 for x so low that the result would not be normal. Unlike std::exp it
/// vectorises. It reduces the range to |r| <= ln(2)/2 and uses the Taylor polynomial to r^7/7!, whose next term is
/// below 2^-27.
ATHANOR_INLINE float exp_fast(float x) {
  constexpr float kLog2e = 1.44269504f, kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;
  const float clamped = x < -87.0f ? -87.0f : (x > 88.0f ? 88.0f : x);
  const float shifted = clamped * kLog2e + 12582912.0f;  // 1.5 * 2^23: the integer part lands in the low bits
  const float n = shifted - 12582912.0f;
  const float r = (clamped - n * kLn2High) - n * kLn2Low;
  float p = 1.0f / 5040;
  p = p * r + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r * r + r + 1.0f;
  const float scaled = p * std::bit_cast<float>((static_cast<int32_t>(n) + 127) << 23);
  return x < -87.0f ? 0.0f : scaled;
}

ATHANOR_INLINE float sigmoid(float x) {
  // The exponent is never positive, so that the exponential cannot overflow.
  const float e = exp_fast(x < 0 ? x : -x);
  return (x < 0 ? e : 1.0f) / (1.0f + e);
}

}  // namespace athanor::kernels
