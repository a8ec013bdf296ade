#pragma once
// Counts the kernels that a CUDA device runs, with CUPTI's activity records. CUPTI comes with CUDA libtorch and is
// opened at run time, so that no build needs it. Its functions are declared here as its documentation has them.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>

namespace athanor::ops::device {

/// The functions of CUPTI that are used; 0 means success. Tests fill them with their own.
struct Cupti {
  using Requested = void (*)(uint8_t** buffer, size_t* size, size_t* max_records);
  using Completed = void (*)(void* context, uint32_t stream, uint8_t* buffer, size_t size, size_t valid_size);

  int (*register_callbacks)(Requested, Completed) = nullptr;
  int (*enable)(int kind) = nullptr;
  int (*disable)(int kind) = nullptr;
  int (*flush_all)(uint32_t flag) = nullptr;
  /// A record begins with its kind, an int.
  int (*next_record)(uint8_t* buffer, size_t valid_size, void** record) = nullptr;
};

constexpr int kCuptiConcurrentKernel = 10;  // CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL

/// Opens CUPTI; nothing if this machine has none.
std::optional<Cupti> open_cupti();

/// Runs `work`, which waits for the device at its end, and returns the number of kernels that ran meanwhile; nothing if
/// CUPTI refuses, as it does while another profiler uses it. One thread may call this at a time.
std::optional<int64_t> count_kernels(const Cupti& cupti, const std::function<void()>& work);

}  // namespace athanor::ops::device
