#pragma once
// FLOPs of a product: one multiply-add is two.

#include "arch/blocks/linear.h"

namespace athanor::inline arch {

inline double matmul_flops(double m, double n, double k) { return 2 * m * n * k; }
inline double linear_flops(const LinearSpec& linear, double tokens) {
  return matmul_flops(tokens, static_cast<double>(linear.rows), static_cast<double>(linear.columns));
}

}  // namespace athanor::inline arch
