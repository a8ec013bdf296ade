#pragma once
// The place where a CUDA kernel runs, and the memory that its tests and benchmarks use.
//
// A kernel's body is written once (launch.h). On a CUDA stream it runs on the device. On Stream::host() the same body
// runs in loops on the host, over host memory, which is slow but tests index arithmetic on machines without a GPU.
// Without nvcc the same files are compiled as C++ and only know the host.
//
// Every function of this folder that takes a device's stream queues its work and returns before it is done, unless its
// comment states otherwise. On Stream::host() the work is done when the function returns. Pointers are to the stream's
// memory (of the device, or of the host). Errors throw std::runtime_error; those of a running kernel appear in
// `synchronize` or in a later call.

#include <cstdint>

namespace athanor::kernels::cuda {

/// The argument of every launch: a CUDA stream, or the host. Kernels on one stream run one after the other.
class Stream {
 public:
  static Stream host() { return Stream(nullptr, true); }
  /// `handle` is a cudaStream_t; null is the device's default stream.
  static Stream device(void* handle) { return Stream(handle, false); }

  bool is_host() const { return is_host_; }
  void* handle() const { return handle_; }

 private:
  Stream(void* handle, bool is_host) : handle_(handle), is_host_(is_host) {}
  void* handle_;
  bool is_host_;
};

/// Returns whether nvcc compiled the kernels.
bool is_compiled();

/// Returns the reason why nothing can run on a device here (no nvcc at build time, no driver, no GPU), or null if there
/// is a device.
const char* why_no_device();

/// Allocates device memory, or host memory for Stream::host(). This is for tests and benchmarks: ops take their memory
/// from libtorch.
/// @throws std::runtime_error with the reason if there is not enough.
void* allocate(const Stream& stream, int64_t bytes);
void release(const Stream& stream, void* memory);

/// Copy from the host to the stream's memory (copy_in) or back (copy_out), in the order of the stream. Both return when
/// the copy is done.
void copy_in(const Stream& stream, void* to, const void* from, int64_t bytes);
void copy_out(const Stream& stream, void* to, const void* from, int64_t bytes);

/// Copies within the stream's memory, to measure the time of a copy.
void copy_on(const Stream& stream, void* to, const void* from, int64_t bytes);

/// Returns when everything on the stream is done.
/// @throws std::runtime_error with the error that the device reports.
void synchronize(const Stream& stream);

/// Measures the milliseconds between `start` and `stop_ms`: on the device with events, on the host with a clock.
class Timer {
 public:
  explicit Timer(const Stream& stream);
  ~Timer();
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  void start();
  double stop_ms();  ///< waits for the stream

 private:
  Stream stream_;
  void *begin_ = nullptr, *end_ = nullptr;
  double host_begin_ms_ = 0;
};

}  // namespace athanor::kernels::cuda
