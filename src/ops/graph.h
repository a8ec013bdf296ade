#pragma once
// Work of a device that is recorded once and launched again as a whole (CUDA graphs), because launching its kernels one
// by one costs a host more time than a device needs for small ones.

#include <functional>
#include <memory>

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
  Graph(Graph&&) noexcept;
  Graph& operator=(Graph&&) noexcept;

  /// Queues the work on the current stream.
  void launch();

  /// Returns whether this process is recording.
  static bool is_recording();

 private:
  std::function<void()> launch_;
};

namespace device {
/// Records on CUDA (choices/); returns a function that launches the graph and keeps it alive.
std::function<void()> record_on_cuda(at::Device device, const std::function<void()>& body);
}  // namespace device

}  // namespace athanor::ops
