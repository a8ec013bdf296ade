#pragma once
// Bounds on rounding errors for tensors; their derivation is in kernels/error_bound.h.

#include <ATen/ATen.h>

#include "kernels/error_bound.h"

namespace athanor::ops {

/// Returns the unit roundoff of the type in which a result is stored.
inline double unit_roundoff(at::ScalarType dtype) {
  TORCH_CHECK(dtype == at::kDouble || dtype == at::kFloat || dtype == at::kBFloat16, "no roundoff known for ", dtype);
  if (dtype == at::kDouble) return kernels::kRoundoffFp64;
  return dtype == at::kFloat ? kernels::kRoundoffFp32 : kernels::kRoundoffBf16;
}

/// Returns a bound on the error of fp32 sums of `terms` terms that are stored as `dtype`; norm = Σ|terms|, for each
/// element.
inline double error_bound(double norm, at::ScalarType dtype, int64_t terms) {
  // The last of the fp32 sum's own roundings stores an fp32 result.
  return kernels::error_bound(norm, dtype == at::kFloat ? 0 : unit_roundoff(dtype), terms);
}
inline at::Tensor error_bound(const at::Tensor& norm, at::ScalarType dtype, int64_t terms) {
  return norm.to(at::kDouble) * error_bound(1.0, dtype, terms);
}

}  // namespace athanor::ops
