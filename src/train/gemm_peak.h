#pragma once
// The yardstick of MFU: how fast this machine multiplies matrices when nothing else is in the way.

#include <ATen/ATen.h>

#include <string>

namespace athanor {

struct GemmPeak {
  double flops = 0;  ///< per second
  std::string is;    ///< "bfloat16, our own product": what made it
};

/// Of the library's matrix product or ours in `dtype` on the CPU, whichever is faster, with the threads that libtorch
/// is set to.
///
/// Short on purpose (about 0.1 s): it runs before every training. See the source for its spread.
GemmPeak measure_gemm_peak(at::ScalarType dtype);

/// The best in any type that training could use: a run in the slower type of a chip is not to look good beside it.
GemmPeak measure_best_gemm_peak();

}  // namespace athanor
