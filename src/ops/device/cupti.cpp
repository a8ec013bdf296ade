#include "ops/device/cupti.h"

#include <cxxabi.h>
#include <dlfcn.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>

namespace athanor::ops::device {
namespace {

// CUPTI calls functions without an argument of ours, possibly from its own thread.
std::mutex mutex;
KernelTimes kernel_times;  // guarded by mutex
std::atomic<decltype(Cupti::next_record)> next_record{nullptr};

constexpr size_t kBufferBytes = size_t{1} << 20, kAlignment = 8;
constexpr uint32_t kForced = 1;  // CUPTI_ACTIVITY_FLAG_FLUSH_FORCED

std::string readable(const char* mangled) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> name(abi::__cxa_demangle(mangled, nullptr, nullptr, &status),
                                                         &std::free);
  return status == 0 && name ? name.get() : mangled;
}

void give_buffer(uint8_t** buffer, size_t* size, size_t* max_records) {
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(kAlignment, kBufferBytes));
  *size = *buffer ? kBufferBytes : 0;
  *max_records = 0;  // as many as fit
}

void read_buffer(void*, uint32_t, uint8_t* buffer, size_t, size_t valid_size) {
  const auto next = next_record.load();
  void* record = nullptr;
  while (valid_size > 0 && next && next(buffer, valid_size, &record) == 0) {
    int kind = 0;
    std::memcpy(&kind, record, sizeof(kind));
    if (kind != kCuptiConcurrentKernel) continue;
    KernelRecord kernel;
    std::memcpy(&kernel, record, sizeof(kernel));
    const std::lock_guard lock(mutex);
    KernelTime& time = kernel_times[kernel.name ? readable(kernel.name) : ""];
    ++time.launches;
    time.seconds += static_cast<double>(kernel.end - kernel.start) * 1e-9;
  }
  std::free(buffer);
}

template <class F>
bool find(void* library, const char* name, F& function) {
  function = reinterpret_cast<F>(::dlsym(library, name));
  return function != nullptr;
}

}  // namespace

std::optional<Cupti> open_cupti() {
  void* library = nullptr;
  for (const char* name : {"libcupti.so.13", "libcupti.so.12", "libcupti.so"}) {
    library = ::dlopen(name, RTLD_NOW);  // it stays open: CUPTI has threads
    if (library) break;
  }
  Cupti cupti;
  const bool whole = library && find(library, "cuptiActivityRegisterCallbacks", cupti.register_callbacks) &&
                     find(library, "cuptiActivityEnable", cupti.enable) &&
                     find(library, "cuptiActivityDisable", cupti.disable) &&
                     find(library, "cuptiActivityFlushAll", cupti.flush_all) &&
                     find(library, "cuptiActivityGetNextRecord", cupti.next_record);
  return whole ? std::optional(cupti) : std::nullopt;
}

std::optional<KernelTimes> time_kernels(const Cupti& cupti, const std::function<void()>& work) {
  next_record = cupti.next_record;
  const bool counts =
      cupti.register_callbacks(&give_buffer, &read_buffer) == 0 && cupti.enable(kCuptiConcurrentKernel) == 0;
  {
    const std::lock_guard lock(mutex);
    kernel_times.clear();
  }
  work();
  if (!counts) return std::nullopt;
  cupti.disable(kCuptiConcurrentKernel);
  if (cupti.flush_all(kForced) != 0) return std::nullopt;
  const std::lock_guard lock(mutex);
  return kernel_times;
}

}  // namespace athanor::ops::device
