#pragma once
// Times the kernels that a CUDA device runs, with CUPTI's activity records. CUPTI comes with CUDA libtorch and is
// opened at run time, so that no build needs it. Its functions are declared here as its documentation has them.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

namespace athanor::ops::device {

/// The functions of CUPTI that are used; 0 means success. Tests fill them with their own.
struct Cupti {
  using Requested = void (*)(uint8_t** buffer, size_t* size, size_t* max_records);
  using Completed = void (*)(void* context, uint32_t stream, uint8_t* buffer, size_t size, size_t valid_size);

  int (*register_callbacks)(Requested, Completed) = nullptr;
  int (*enable)(int kind) = nullptr;
  int (*disable)(int kind) = nullptr;
  int (*flush_all)(uint32_t flag) = nullptr;
  /// A record begins with its kind, an int. That of a kernel has the two times and the name of KernelRecord.
  int (*next_record)(uint8_t* buffer, size_t valid_size, void** record) = nullptr;
};

constexpr int kCuptiConcurrentKernel = 10;  // CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL

/// The beginning of CUPTI's record of a kernel, which is the same in all versions since CUDA 9 (CUpti_ActivityKernel4
/// to 10); times in nanoseconds, the name as the compiler mangles it.
struct KernelRecord {
  int kind;
  char settings[12];
  uint64_t start, end;
  char place[72];
  const char* name;
};
static_assert(offsetof(KernelRecord, start) == 16 && offsetof(KernelRecord, end) == 24 &&
              offsetof(KernelRecord, name) == 104);

struct KernelTime {
  int64_t launches = 0;
  double seconds = 0;
};
using KernelTimes = std::map<std::string, KernelTime>;  ///< by name

/// Opens CUPTI; nothing if this machine has none.
std::optional<Cupti> open_cupti();

/// Runs `work`, which waits for the device at its end, and returns the kernels that ran meanwhile; nothing if CUPTI
/// refuses, as it does while another profiler uses it. One thread may call this at a time.
std::optional<KernelTimes> time_kernels(const Cupti& cupti, const std::function<void()>& work);

}  // namespace athanor::ops::device
