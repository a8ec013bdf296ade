#include "kernels/cuda/stream.h"

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>

#include "kernels/cuda/launch.h"

namespace athanor::kernels::cuda {
namespace {

double now_ms() {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

#ifdef __CUDACC__
void check(cudaError_t status, const char* what) {
  if (status != cudaSuccess) fail_launch(what, cudaGetErrorString(status));
}
cudaStream_t cuda_stream(const Stream& stream) { return static_cast<cudaStream_t>(stream.handle()); }
#endif

}  // namespace

namespace {
GuardedDevice* the_guarded_device = nullptr;
}

GuardedDevice* guarded_device() { return the_guarded_device; }
void set_guarded_device(GuardedDevice* device) { the_guarded_device = device; }

void fail_launch(const char* kernel, const char* why) {
  // base/error.h is not used, so that nvcc need not read fmt. The one catch in main prints what() of any
  // std::runtime_error.
  throw std::runtime_error(std::string("CUDA: ") + kernel + ": " + why);
}

#ifdef __CUDACC__

bool is_compiled() { return true; }

const char* why_no_device() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess) {
    cudaGetLastError();  // so that the error is not attributed to a later launch
    return cudaGetErrorString(status);
  }
  return count > 0 ? nullptr : "no CUDA device";
}

DeviceFacts facts_of_device(int index) {
  int before = 0;
  cudaDeviceProp properties;
  size_t free = 0, total = 0;
  if (cudaGetDevice(&before) != cudaSuccess || cudaSetDevice(index) != cudaSuccess) return {};
  const bool known =
      cudaGetDeviceProperties(&properties, index) == cudaSuccess && cudaMemGetInfo(&free, &total) == cudaSuccess;
  cudaSetDevice(before);
  cudaGetLastError();  // so that an error is not attributed to a later launch
  if (!known) return {};
  std::string id;
  for (const char byte : properties.uuid.bytes) {
    constexpr const char* kDigits = "0123456789abcdef";
    id += kDigits[static_cast<unsigned char>(byte) >> 4];
    id += kDigits[static_cast<unsigned char>(byte) & 15];
  }
  return {properties.name, id, static_cast<int64_t>(free), static_cast<int64_t>(total)};
}

void check_launch(const char* kernel) { check(cudaGetLastError(), kernel); }

#else

DeviceFacts facts_of_device(int) { return {}; }

bool is_compiled() { return false; }
const char* why_no_device() { return "the CUDA kernels were not compiled: nvcc was not found"; }

#endif

void* allocate(const Stream& stream, int64_t bytes) {
  const auto size = static_cast<size_t>(bytes > 0 ? bytes : 1);
  void* memory = nullptr;
  if (stream.is_host()) {
    memory = std::malloc(size);
  } else {
#ifdef __CUDACC__
    check(cudaMalloc(&memory, size), "cudaMalloc");
#endif
  }
  if (!memory) fail_launch("allocate", ("no memory for " + std::to_string(bytes) + " bytes").c_str());
  return memory;
}

void release(const Stream& stream, void* memory) {
  if (stream.is_host()) {
    std::free(memory);
    return;
  }
#ifdef __CUDACC__
  cudaFree(memory);  // destructors call this: synchronize reports earlier errors
#endif
}

void copy_in(const Stream& stream, void* to, const void* from, int64_t bytes) {
  if (bytes <= 0) return;
  if (stream.is_host()) {
    std::memcpy(to, from, static_cast<size_t>(bytes));
    return;
  }
#ifdef __CUDACC__
  check(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyHostToDevice, cuda_stream(stream)), "copy_in");
  synchronize(stream);
#endif
}

void copy_out(const Stream& stream, void* to, const void* from, int64_t bytes) {
  if (bytes <= 0) return;
  if (stream.is_host()) {
    std::memcpy(to, from, static_cast<size_t>(bytes));
    return;
  }
#ifdef __CUDACC__
  check(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost, cuda_stream(stream)), "copy_out");
  synchronize(stream);
#endif
}

void copy_on(const Stream& stream, void* to, const void* from, int64_t bytes) {
  if (bytes <= 0) return;
  if (stream.is_host()) {
    std::memcpy(to, from, static_cast<size_t>(bytes));
    return;
  }
#ifdef __CUDACC__
  check(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToDevice, cuda_stream(stream)),
        "copy_on");
#endif
}

void synchronize(const Stream& stream) {
  if (stream.is_host()) return;
#ifdef __CUDACC__
  check(cudaStreamSynchronize(cuda_stream(stream)), "synchronize");
#endif
}

Timer::Timer(const Stream& stream) : stream_(stream) {
#ifdef __CUDACC__
  if (stream.is_host()) return;
  cudaEvent_t begin, end;
  check(cudaEventCreate(&begin), "cudaEventCreate");
  check(cudaEventCreate(&end), "cudaEventCreate");
  begin_ = begin;
  end_ = end;
#endif
}

Timer::~Timer() {
#ifdef __CUDACC__
  if (begin_) cudaEventDestroy(static_cast<cudaEvent_t>(begin_));
  if (end_) cudaEventDestroy(static_cast<cudaEvent_t>(end_));
#endif
}

void Timer::start() {
  host_begin_ms_ = now_ms();
#ifdef __CUDACC__
  if (!stream_.is_host()) check(cudaEventRecord(static_cast<cudaEvent_t>(begin_), cuda_stream(stream_)), "Timer");
#endif
}

double Timer::stop_ms() {
  if (stream_.is_host()) return now_ms() - host_begin_ms_;
  float ms = 0;
#ifdef __CUDACC__
  check(cudaEventRecord(static_cast<cudaEvent_t>(end_), cuda_stream(stream_)), "Timer");
  check(cudaEventSynchronize(static_cast<cudaEvent_t>(end_)), "Timer");
  check(cudaEventElapsedTime(&ms, static_cast<cudaEvent_t>(begin_), static_cast<cudaEvent_t>(end_)), "Timer");
#endif
  return ms;
}

}  // namespace athanor::kernels::cuda
