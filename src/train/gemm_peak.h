#pragma once
// The yardstick of MFU: how fast this machine multiplies matrices when nothing else is in the way.

#include <ATen/ATen.h>

namespace athanor {

/// FLOP/s of the faster of the library's matrix product and ours in `dtype` on the CPU, with the threads that libtorch
/// is set to.
///
/// Short on purpose (about 50 ms in all): it runs before every training. See the source for its spread.
double measure_gemm_peak_flops(at::ScalarType dtype);

}  // namespace athanor
