#pragma once
// Bounds for the difference between a computed result and the exact one. Test tolerances come from here, never from
// observed results.
//
// One rounding to nearest gives fl(a op b) = (a op b)(1 + δ), |δ| <= u, and u = 2^-p for p significant bits: fp32 has
// 24, bf16 has 8 (seven stored and the hidden one). In a sum of n terms, in whatever order and with or without fused
// products, a term goes through at most n roundings; with γ_n = nu / (1 − nu) the error of the sum is at most γ_n
// Σ|terms| (Higham, "Accuracy and Stability of Numerical Algorithms", 2002, §3.1).
//
// For large n that worst case does not occur, because roundings of both signs cancel. If they are independent with mean
// zero, the error of a sum of n terms is below λ√n·u Σ|terms| except with probability 2n·exp(−λ²/2), to first order.
// The source is Higham and Mary, "A new approach to probabilistic rounding error analysis", 2019, theorem 3.1. λ is
// chosen below; for n < λ² the worst case is the smaller of the two bounds.

#include <cmath>
#include <cstdint>

namespace athanor::kernels {

constexpr double kRoundoffFp64 = 0x1p-53, kRoundoffFp32 = 0x1p-24, kRoundoffBf16 = 0x1p-8;

/// Returns the λ of the bound above, from 2 · checked · exp(−λ²/2) = chance: 9.2.
inline double rounding_lambda() {
  constexpr double kChecked = 1e9;  // upper estimate of the terms in all sums of a test program: elements × length
  constexpr double kChance = 1e-9;  // probability that any of them exceeds the bound
  return std::sqrt(2 * std::log(2 * kChecked / kChance));
}

/// Returns the error bound, relative to Σ|terms|, of an fp32 sum of `terms` terms, or of `terms` successive roundings.
inline double sum_error(int64_t terms) {
  const auto n = static_cast<double>(terms);
  return std::fmin(n * kRoundoffFp32 / (1 - n * kRoundoffFp32), rounding_lambda() * std::sqrt(n) * kRoundoffFp32);
}

/// Returns the absolute error bound of an fp32 sum of `terms` terms that is then rounded to a type with unit roundoff
/// `stored` (kRoundoff...).
/// @param norm  Σ|terms|.
inline double error_bound(double norm, double stored, int64_t terms) {
  const double sum = sum_error(terms);
  return norm * (sum + stored * (1 + sum));
}

}  // namespace athanor::kernels
