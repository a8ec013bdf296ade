#pragma once
// Measures the reference rate for MFU: how fast this machine multiplies matrices when it does nothing else.

#include <string>

#include "ops/tensor.h"

namespace athanor::ops {

struct GemmPeak {
  double flops = 0;  ///< FLOP per second
  std::string is;    ///< what gave the rate: "bfloat16, our own product"
};

/// Measures the library's matrix product and ours in `dtype` on the CPU, with the number of threads that libtorch is
/// set to in this process, and returns the faster rate.
///
/// The measurement is short (about 0.1 s) because it runs before every training. See the source for its spread.
GemmPeak measure_gemm_peak(at::ScalarType dtype);

/// Measures libtorch's product in `dtype` on a device, for about 0.1 s. The host waits.
GemmPeak measure_gemm_peak(at::ScalarType dtype, at::Device device);

/// Returns the best rate of fp32 and, if the CPU has instructions for it, bf16, so that a run in a chip's slower type
/// does not look good in comparison.
GemmPeak measure_best_gemm_peak();

/// Measures the rate of which the products with `weights` are a share: of a CPU the best one, of a device that in their
/// type.
GemmPeak measure_gemm_peak_for(const Tensor& weights);

}  // namespace athanor::ops
