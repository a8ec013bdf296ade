#pragma once
// What the CUDA part of libtorch finds on this machine.

#include <cstdint>
#include <string>

namespace athanor::ops::device {

struct CudaState {
  bool is_built = false;      ///< this build uses the CUDA part of libtorch
  int64_t version = 0;        ///< the CUDA that libtorch was built for: 13000 for 13.0
  std::string why_none;       ///< libtorch's message if it finds no device; empty if there is one
  std::string why_not_built;  ///< what CMake found out, with the remedy; empty if libtorch has no CUDA
};

/// Asks the driver (choices/: one file for a libtorch with CUDA, one for a libtorch without).
CudaState find_cuda();

/// Returns, in one line with the remedy, why there is no CUDA device; empty if there is one.
std::string describe_missing_cuda(const CudaState& state);

/// Returns the same in a few words, without the remedy: "libtorch has no CUDA", "a build for CPUs".
std::string describe_briefly(const CudaState& state);

/// True if there is a driver, and it is older than libtorch's CUDA.
bool has_old_driver(const CudaState& state);

}  // namespace athanor::ops::device
