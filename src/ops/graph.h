#pragma once
// Work of a device that is recorded once and launched again as a whole (CUDA graphs). Launching its kernels one by one
// costs a host more time than a device needs for small ones.

#include <cstdint>
#include <functional>

#include "ops/tensor.h"

namespace athanor::ops {

/// The recorded work of one function. Each launch does the same on the same memory: it reads what the tensors contain
/// then that the function read, and its results are in the tensors that the function made.
class Graph {
 public:
  /// Returns whether graphs exist on the device.
  static bool exists_on(at::Device device);

  /// Calls `body`, whose work on the device's current stream is recorded and not done. The body must have run before
  /// (libraries prepare themselves in their first calls). It must not wait for the device, and not copy from or to the
  /// host. The tensors that it reads must stay where they are while this lives; what it allocates belongs to this.
  /// @throws whatever the body throws, and Error if the device can't record it; the device is usable afterwards.
  Graph(at::Device device, const std::function<void()>& body);
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  /// Queues the work on the current stream.
  void launch();

  /// Returns the memory that the graph took from the device for what its body allocated. It keeps it, for its next
  /// launch. (What other threads took from the device meanwhile is counted as well.)
  int64_t held_bytes() const { return held_bytes_; }
  /// Returns the sum of these over all graphs of this process.
  static int64_t held_bytes_of_all();

  /// Returns whether this process is recording.
  static bool is_recording();

 private:
  std::function<void()> launch_;
  int64_t held_bytes_ = 0;
};

namespace device {
/// Records on CUDA (choices/); returns a function that launches the graph and keeps it alive.
std::function<void()> record_on_cuda(at::Device device, const std::function<void()>& body);
}  // namespace device

}  // namespace athanor::ops
