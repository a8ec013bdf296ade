#pragma once
// A device for tests, which the host plays: libtorch's third-party device ("privateuseone") with memory that the host
// cannot touch (memory.h), and with streams that run late and out of order (queues.h). An op on its tensors is queued;
// its result has a shape at once, and values when something waits. So a host access to device memory is a fault, and a
// missing wait or event gives wrong bits.
//
// Athanor's kernels (kernels/cuda/) are queued as well. A process has kMostDevices of them, each with its own memory
// and streams, so that threads can be ranks with a device each; as with CUDA, a thread has a current device, which is
// the first one until it is set.

#include <ATen/ATen.h>

#include "guarded/memory.h"
#include "guarded/queues.h"

namespace athanor::guarded {

/// Registers the device with libtorch; a second call does nothing.
void install();

/// Calls install, and hides GPUs, unless the environment has ATHANOR_TEST_DEVICE=cuda: then the tests of devices run on
/// a GPU. There can't be both in one process: libtorch's autograd takes the streams of one kind of accelerator only.
void install_for_tests();
/// The device that tests use: this one, or the first GPU.
at::Device device_of_tests();

/// Starts the thread that calls Queues::advance_if_idle for each device. For devices that communicate.
void let_devices_advance();
/// Sets the order in which devices begin that nothing has used yet, each drawing from another seed, and the time that
/// they keep (Queues::keep_time).
void begin_in(const Order& order, double ms_of_launch = 0);

/// Sets whether Athanor's kernels exist on the device (they do at first), or only libtorch's ops.
void set_kernels(bool compiled);
/// Sets whether train.device = "auto" takes this device (not at first).
void offer(bool offered);

constexpr int kMostDevices = 16;

/// Those of a device; without an argument, of this thread's current one.
Queues& queues(int device);
Memory& memory(int device);
Queues& queues();
Memory& memory();

/// The first device, and any of them.
inline const at::Device kDevice{at::kPrivateUse1, 0};
inline at::Device device_with(int index) { return {at::kPrivateUse1, static_cast<at::DeviceIndex>(index)}; }

int current_device();
/// Sets this thread's current device as long as the object lives.
class OnDevice {
 public:
  explicit OnDevice(int device);
  ~OnDevice();
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  int before_;
};

/// Copies a tensor of the host to the device, or one of the device to the host. The host waits.
at::Tensor to_device(const at::Tensor& x);
at::Tensor to_host(const at::Tensor& x);

/// The stream of the current device on which this thread's ops are queued.
Queues::StreamId current_stream();

/// The number of copies between host and device since the program began.
struct CopyCounts {
  int64_t to_device = 0, to_host = 0;
};
CopyCounts copy_counts();

}  // namespace athanor::guarded
