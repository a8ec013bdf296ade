#pragma once
// Exact values with bounds on the errors of fp32 arithmetic.
//
// A test writes an op's formula once in these and gets the result in fp64 and an error bound for each of its elements:
// every operation propagates the errors of its operands and adds its own rounding (running error analysis, Higham 2002,
// §3.3). Values that a kernel stores in bf16 on the way are marked by `stored`. The order of operations need not be the
// kernel's: a sum is bounded for every order.

#include <initializer_list>

#include "ops/error_bound.h"

namespace athanor::ops::test {

using at::Tensor;

/// Elementwise: the computed result is within `error` of `value`. Both fp64, of one shape.
struct Tracked {
  Tensor value, error;

  /// Applies one view to both.
  template <class F>
  Tracked view(F f) const {
    return {f(value), f(error)};
  }
  Tensor largest() const { return value.abs() + error; }
};

/// Returns a number without error: an input, in any type.
inline Tracked exact(const Tensor& x) {
  const Tensor value = x.detach().to(at::kDouble);
  return {value, at::zeros_like(value)};
}
inline Tracked exact(double x) { return exact(at::scalar_tensor(x, at::kDouble)); }

/// Adds the error of `roundings` successive roundings of relative size u.
inline Tracked rounded(const Tracked& a, int64_t roundings = 1) {
  return {a.value, a.error + error_bound(a.largest(), at::kFloat, roundings)};
}

/// Adds one rounding to nearest if the type is narrower than fp32.
inline Tracked stored(const Tracked& a, at::ScalarType dtype) {
  return {a.value, dtype == at::kFloat ? a.error : a.error + unit_roundoff(dtype) * a.largest()};
}

inline Tracked operator+(const Tracked& a, const Tracked& b) { return rounded({a.value + b.value, a.error + b.error}); }
inline Tracked operator-(const Tracked& a, const Tracked& b) { return rounded({a.value - b.value, a.error + b.error}); }
inline Tracked operator*(const Tracked& a, const Tracked& b) {
  return rounded({a.value * b.value, a.value.abs() * b.error + a.error * b.largest()});
}
inline Tracked operator*(const Tracked& a, double b) { return a * rounded(exact(b)); }

/// Multiplies rows of a by columns of b, with K products each.
inline Tracked matmul(const Tracked& a, const Tracked& b) {
  const Tensor carried = at::matmul(a.value.abs(), b.error) + at::matmul(a.error, b.largest());
  const Tensor norm = at::matmul(a.largest(), b.largest());
  return {at::matmul(a.value, b.value), carried + error_bound(norm, at::kFloat, a.value.size(-1))};
}

inline Tracked sum(const Tracked& a, int64_t dim, bool keepdim = false) {
  const Tensor own = error_bound(a.largest().sum(dim, keepdim), at::kFloat, a.value.size(dim));
  return {a.value.sum(dim, keepdim), a.error.sum(dim, keepdim) + own};
}

/// Applies f, which must be monotone: an argument off by `error` moves the result no further than the ends of that
/// interval do.
template <class F>
Tracked monotone(const Tracked& a, int64_t roundings, F f) {
  const Tensor value = f(a.value);
  const Tensor carried = at::maximum((f(a.value + a.error) - value).abs(), (f(a.value - a.error) - value).abs());
  return rounded({value, carried}, roundings);
}

/// Returns e^x within `ulps`, each of at most two roundings; results below 2^-125 may be zero.
inline Tracked exp(const Tracked& a, int64_t ulps = 2) {
  const Tracked e = monotone(a, 2 * ulps, [](const Tensor& x) { return x.exp(); });
  return {e.value, e.error + 0x1p-125};
}
inline Tracked log(const Tracked& a) {
  return monotone(a, 2, [](const Tensor& x) { return x.log(); });
}
/// Returns 1 / √a, with two roundings.
inline Tracked rsqrt(const Tracked& a) {
  return monotone(a, 2, [](const Tensor& x) { return x.rsqrt(); });
}
inline Tracked reciprocal(const Tracked& a) {
  return monotone(a, 1, [](const Tensor& x) { return x.reciprocal(); });
}
/// Returns the sigmoid: an exponential of 2 ULP (4 roundings), an addition and a division.
inline Tracked sigmoid(const Tracked& a) {
  const Tracked s = monotone(a, 6, [](const Tensor& x) { return x.sigmoid(); });
  return {s.value, s.error + 0x1p-125};
}
/// Returns tanh within 5 units of 2^-24 of it.
inline Tracked tanh(const Tracked& a) {
  return monotone(a, 5, [](const Tensor& x) { return x.tanh(); });
}
/// Returns cap · tanh(a / cap); a itself if cap is 0.
inline Tracked soft_cap(const Tracked& a, double cap) { return cap == 0 ? a : tanh(a * (1 / cap)) * cap; }

}  // namespace athanor::ops::test
