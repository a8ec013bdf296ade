#pragma once
// Where a benchmark computes.

#include "bench/report.h"

namespace athanor::bench {

using at::Tensor;

/// Returns the bytes of memory that are free there; infinity if that is not known.
double free_memory(at::Device device);

/// Returns a tensor of the host on the device, and one of the device on the host; both wait.
Tensor sent(const Tensor& x, at::Device device);

/// Returns the limit of matrix products on a device, which is measured once: other processes do not share it.
Limit gemm_limit_of(at::ScalarType dtype, at::Device device);

/// Adds the device to the fields of a benchmark's results, if it is not the CPU.
nlohmann::json with_device(nlohmann::json fields, at::Device device);

}  // namespace athanor::bench
