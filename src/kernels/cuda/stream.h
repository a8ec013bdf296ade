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
#include <functional>
#include <string>

namespace athanor::kernels::cuda {

/// A device that the host plays: it runs the work later, in tests (guarded/device.h), or never, in a played step.
class GuardedDevice {
 public:
  virtual ~GuardedDevice() = default;
  /// Queues the work of a kernel on the current stream of this thread.
  virtual void submit(const char* kernel, std::function<void()> work) = 0;
  /// Returns the address at which kernels find what a tensor has at `address`.
  virtual void* open(void* address) const = 0;
  /// False if tensors are to be computed without our kernels.
  virtual bool has_kernels() const = 0;
  /// True if a run may choose this device.
  virtual bool is_offered() const = 0;
  virtual int64_t free_bytes() const = 0;
  virtual int64_t total_bytes() const = 0;
  /// The pieces of work that were queued since the program began.
  virtual int64_t num_launches() const = 0;
  /// From begin_capture on, the work of this thread's current stream is recorded instead of queued, and memory that is
  /// allocated is not used for anything else. end_capture returns a function that queues what was recorded, as one
  /// launch; the memory is free again when no copy of it is left.
  virtual void begin_capture() = 0;
  virtual std::function<void()> end_capture() = 0;
};

/// Returns the device that the host plays; null in every program but tests.
GuardedDevice* guarded_device();
void set_guarded_device(GuardedDevice* device);

/// The argument of every launch: a CUDA stream, the host, or a stream of the device that the host plays. Kernels on one
/// stream run one after the other.
class Stream {
 public:
  static Stream host() { return Stream(nullptr, Kind::kHost); }
  /// `handle` is a cudaStream_t; null is the device's default stream.
  static Stream device(void* handle) { return Stream(handle, Kind::kDevice); }
  static Stream guarded(GuardedDevice& device) { return Stream(&device, Kind::kGuarded); }

  bool is_host() const { return kind_ == Kind::kHost; }
  /// Null if the stream is not one of a guarded device.
  GuardedDevice* guarded() const { return kind_ == Kind::kGuarded ? static_cast<GuardedDevice*>(handle_) : nullptr; }
  void* handle() const { return handle_; }

 private:
  enum class Kind { kHost, kDevice, kGuarded };
  Stream(void* handle, Kind kind) : handle_(handle), kind_(kind) {}
  void* handle_;
  Kind kind_;
};

/// Returns whether nvcc compiled the kernels.
bool is_compiled();

/// Returns the reason why nothing can run on a device here (no nvcc at build time, no driver, no GPU), or null if there
/// is a device.
const char* why_no_device();

struct DeviceFacts {
  std::string name;
  std::string id;  ///< differs between devices: the UUID, in hexadecimal
  int64_t free_bytes = -1, total_bytes = -1;
};
/// Returns what the driver tells of a device; empty and -1 if nvcc did not compile this, or if the driver fails.
DeviceFacts facts_of_device(int index);

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
