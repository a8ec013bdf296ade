#pragma once
// Where a CUDA kernel of ours runs, and the memory that its tests and benches use.
//
// A kernel's body is written once (launch.h). On a CUDA stream it runs on the device; on Stream::host() the same body
// runs in loops on the host, over host memory: slow, but it is how index arithmetic is tested where there is no GPU.
// Without nvcc the same files are compiled as C++ and know the host only.

#include <cstdint>

namespace athanor::kernels::cuda {

/// What a launch takes: a CUDA stream, or the host. Kernels on one stream run one after the other.
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

/// Whether nvcc compiled the kernels.
bool is_compiled();

/// Why nothing can run on a device here (no nvcc at build time, no driver, no GPU), or null where something can.
const char* why_no_device();

/// Device memory, or host memory for Stream::host(). Fails with the number of bytes. For tests and benches: ops take
/// their memory from libtorch.
void* allocate(const Stream& stream, int64_t bytes);
void release(const Stream& stream, void* memory);

/// Ordered on the stream; both come back when the copy is done.
void copy_in(const Stream& stream, void* to, const void* from, int64_t bytes);
void copy_out(const Stream& stream, void* to, const void* from, int64_t bytes);

/// Within the place; comes back at once. For measuring what a copy takes.
void copy_on(const Stream& stream, void* to, const void* from, int64_t bytes);

/// Comes back when everything on the stream is done; fails with what the device says went wrong.
void synchronize(const Stream& stream);

/// Milliseconds on the device between two calls of `mark`; on the host, of a clock.
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
