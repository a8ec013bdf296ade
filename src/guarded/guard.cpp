// What libtorch asks of a device: the current stream of a thread, events, and memory.

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <string_view>
#include <thread>

#include "base/error.h"
#include "guarded/device.h"
#include "guarded/ops.h"
#include "kernels/cuda/stream.h"

namespace athanor::guarded {
namespace {

thread_local int device_of_thread = 0;
thread_local std::array<Queues::StreamId, kMostDevices> stream_of_thread{};

Queues::StreamId& stream_on(int device) { return stream_of_thread[static_cast<size_t>(device)]; }

// The queues and the memory of a device. They live as long as the process: tensors in other static objects may outlive
// any that is destroyed.
struct Parts {
  Parts(const Order& order, double ms_of_launch) {
    queues.set_order(order);
    queues.keep_time(ms_of_launch);
  }
  Queues queues;
  Memory memory{queues};
};

Order first_order;              // which a device has until set_order is called
double first_ms_of_launch = 0;  // the same for keep_time

// Those of the devices that have been used.
std::array<std::atomic<Parts*>, kMostDevices>& all_parts() {
  static auto& all = *new std::array<std::atomic<Parts*>, kMostDevices>{};
  return all;
}

Parts& parts_of(int device) {
  static auto& mutex = *new std::mutex;
  auto& parts = all_parts().at(static_cast<size_t>(device));
  if (!parts) {
    const std::lock_guard lock(mutex);
    if (!parts)
      parts = new Parts({first_order.kind, first_order.seed + static_cast<uint64_t>(device)}, first_ms_of_launch);
  }
  return *parts;
}

// Returns the device that has an address, or -1.
int device_with_address(const void* address) {
  for (int device = 0; device < kMostDevices; ++device) {
    const Parts* parts = all_parts()[static_cast<size_t>(device)];
    if (parts && parts->memory.contains(address)) return device;
  }
  return -1;
}

c10::Stream stream_with(at::Device device, Queues::StreamId id) { return c10::Stream(c10::Stream::UNSAFE, device, id); }
Queues& queues_of(const c10::Stream& stream) { return queues(stream.device_index()); }

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return at::kPrivateUse1; }
  c10::Device exchangeDevice(c10::Device device) const override {
    return device_with(std::exchange(device_of_thread, device.index()));
  }
  c10::Device getDevice() const override { return device_with(device_of_thread); }
  void setDevice(c10::Device device) const override { device_of_thread = device.index(); }
  void uncheckedSetDevice(c10::Device device) const noexcept override { device_of_thread = device.index(); }
  c10::DeviceIndex deviceCount() const noexcept override { return kMostDevices; }

  c10::Stream getStream(c10::Device device) const override {
    const at::Device with_index = device.has_index() ? device : getDevice();
    return stream_with(with_index, stream_on(with_index.index()));
  }
  c10::Stream getDefaultStream(c10::Device device) const override { return stream_with(device, 0); }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override { return getNewStream(device); }
  c10::Stream getNewStream(c10::Device device, int = 0) const override {
    const at::Device with_index = device.has_index() ? device : getDevice();
    return stream_with(with_index, queues(with_index.index()).new_stream());
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    return stream_with(stream.device(), std::exchange(stream_on(stream.device_index()), stream.id()));
  }
  bool queryStream(const c10::Stream& stream) const override { return queues_of(stream).query(stream.id()); }
  void synchronizeStream(const c10::Stream& stream) const override { queues_of(stream).synchronize(stream.id()); }
  void synchronizeDevice(c10::DeviceIndex device) const override { queues(device).synchronize_all(); }

  // An event of libtorch is a pointer to a pointer of ours.
  static Queues::Event& at(void* event) { return *static_cast<Queues::Event*>(event); }
  void record(void** event, const c10::Stream& stream, c10::DeviceIndex, c10::EventFlag) const override {
    if (!*event) *event = new Queues::Event;
    at(*event) = queues_of(stream).record(stream.id());
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event) queues_of(stream).block(stream.id(), at(event));
  }
  bool queryEvent(void* event) const override { return !event || at(event)->owner->query(at(event)); }
  void synchronizeEvent(void* event) const override {
    if (event) at(event)->owner->synchronize(at(event));
  }
  double elapsedTime(void* from, void* to, c10::DeviceIndex) const override {
    return Queues::between(at(from), at(to));
  }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override {
    delete static_cast<Queues::Event*>(event);
  }
  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    if (data.get()) memory(stream.device_index()).note_use(data.get(), stream.id());
  }
};

struct DeviceAllocator final : c10::DeviceAllocator {
  c10::DataPtr allocate(size_t num_bytes) override {
    const at::Device device = device_with(current_device());
    if (num_bytes == 0) return {nullptr, device};
    void* closed = memory().allocate(num_bytes, current_stream());
    TORCH_CHECK_WITH(OutOfMemoryError, closed, why_not(num_bytes));
    return {closed, closed, &release, device};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t num_bytes) const override {
    queues().submit(
        current_stream(), "copy_data",
        [to = memory().open(static_cast<std::byte*>(to)), from = memory().open(static_cast<const std::byte*>(from)),
         num_bytes] { std::copy_n(from, num_bytes, to); });
  }

  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t = {0, 0}) override {}  // what is kept for reuse has no other use here
  void recordStream(const c10::DataPtr& data, c10::Stream stream) override {
    if (data.get()) memory(stream.device_index()).note_use(data.get(), stream.id());
  }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    c10::CachingDeviceAllocator::DeviceStats stats;
    stats.allocated_bytes[0].current = static_cast<int64_t>(memory(device).allocated());
    stats.allocated_bytes[0].peak = static_cast<int64_t>(memory(device).peak());
    stats.reserved_bytes[0].current = static_cast<int64_t>(memory(device).taken());
    return stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex) override {}
  void resetPeakStats(c10::DeviceIndex device) override { memory(device).reset_peak(); }

 private:
  static void release(void* closed) { memory(device_with_address(closed)).free(closed); }

  // The words of the allocators of CUDA and XPU. What a graph keeps for its next launch is in use for them.
  static std::string why_not(size_t num_bytes) {
    const size_t free = memory().free_bytes(), pooled = memory().free_pooled(), used = memory().allocated() + pooled;
    return c10::str("guarded out of memory. Tried to allocate ", num_bytes, " bytes. GPU 0 has a total capacity of ",
                    used + free, " bytes of which ", free, " bytes is free. Of the allocated memory ", used,
                    " bytes is allocated by PyTorch, with ", pooled, " bytes allocated in private pools ",
                    "(e.g., CUDA Graphs), and 0 bytes is reserved by PyTorch but unallocated.");
  }
};

// Pinned memory is memory of the host that the device may read late.
struct PinnedAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t num_bytes) override;
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t num_bytes) const override {
    default_copy_data(to, from, num_bytes);
  }
  static bool is_pinned(const void* address);

 private:
  static void release(void* address);
  static std::mutex& mutex() {
    static std::mutex it;
    return it;
  }
  static std::map<const std::byte*, size_t>& blocks() {
    static std::map<const std::byte*, size_t> them;
    return them;
  }
};

c10::DataPtr PinnedAllocator::allocate(size_t num_bytes) {
  auto* address = new std::byte[std::max<size_t>(num_bytes, 1)];
  const std::lock_guard lock(mutex());
  blocks()[address] = std::max<size_t>(num_bytes, 1);
  return {address, address, &release, c10::Device(at::kCPU)};
}

void PinnedAllocator::release(void* address) {
  const std::lock_guard lock(mutex());
  blocks().erase(static_cast<std::byte*>(address));
  delete[] static_cast<std::byte*>(address);
}

bool PinnedAllocator::is_pinned(const void* address) {
  const std::lock_guard lock(mutex());
  const auto after = blocks().upper_bound(static_cast<const std::byte*>(address));
  if (after == blocks().begin()) return false;
  const auto& [begin, size] = *std::prev(after);
  return address < begin + size;
}

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return kMostDevices; }
  c10::DeviceIndex getCurrentDevice() const override { return device_of_thread; }
  void setCurrentDevice(c10::DeviceIndex device) const override { device_of_thread = device; }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override {
    return static_cast<c10::DeviceIndex>(std::exchange(device_of_thread, device));
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override { return exchangeDevice(device); }
  at::Device getDeviceFromPtr(void* address) const override { return device_with(device_with_address(address)); }
  bool isPinnedPtr(const void* data) const override { return PinnedAllocator::is_pinned(data); }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override {
    static const auto generator = at::detail::createCPUGenerator();  // at::manual_seed asks each device
    return generator;
  }
  at::Allocator* getPinnedMemoryAllocator() const override { return &pinned; }

  static inline PinnedAllocator pinned;
};

// Our kernels, played.
struct Kernels final : kernels::cuda::GuardedDevice {
  void submit(const char* kernel, std::function<void()> work) override {
    queues().submit(current_stream(), kernel, std::move(work));
  }
  void* open(void* address) const override {
    const int device = device_with_address(address);
    return device < 0 ? address : memory(device).open(static_cast<std::byte*>(address));
  }
  bool has_kernels() const override { return compiled; }
  bool is_offered() const override { return offered; }
  int64_t free_bytes() const override { return static_cast<int64_t>(memory().free_bytes()); }
  int64_t total_bytes() const override {
    return free_bytes() + static_cast<int64_t>(memory().allocated() + memory().free_pooled());
  }
  int64_t num_launches() const override { return queues().counts().launches; }

  void begin_capture() override {
    queues().begin_capture(current_stream());
    pool = memory().begin_pool(current_stream());
  }
  std::function<void()> end_capture() override {
    memory().end_pool();
    // The pool is released with the last copy of the function.
    const std::shared_ptr<void> kept(nullptr, [captured = pool](void*) { memory().release_pool(captured); });
    const auto recording = std::make_shared<Queues::Recording>(queues().end_capture());
    return [recording, kept] { queues().replay(current_stream(), *recording); };
  }

  bool compiled = true, offered = false;
  int64_t pool = 0;
};

DeviceAllocator device_allocator;
Hooks hooks;
Kernels our_kernels;

}  // namespace

namespace {
bool tests_use_cuda() {
  const char* device = std::getenv("ATHANOR_TEST_DEVICE");
  return device && std::string_view(device) == "cuda";
}
}  // namespace

void install_for_tests() {
  if (tests_use_cuda()) return;
  ::setenv("CUDA_VISIBLE_DEVICES", "", /*overwrite=*/1);  // libtorch has not asked the driver yet
  install();
}

at::Device device_of_tests() { return tests_use_cuda() ? at::Device(at::kCUDA, 0) : kDevice; }

void install() {
  static std::once_flag once;
  std::call_once(once, [] {
    c10::register_privateuse1_backend("guarded");
    at::RegisterPrivateUse1HooksInterface(&hooks);
    c10::SetAllocator(at::kPrivateUse1, &device_allocator);
    static const c10::impl::DeviceGuardImplRegistrar guard(at::kPrivateUse1, new Guard);
    kernels::cuda::set_guarded_device(&our_kernels);
    register_ops();
  });
}

void let_devices_advance() {
  static std::once_flag once;
  std::call_once(once, [] {
    std::thread([] {
      for (;;) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        for (const auto& parts : all_parts())
          if (parts) parts.load()->queues.advance_if_idle();
      }
    }).detach();
  });
}

void begin_in(const Order& order, double ms_of_launch) {
  first_order = order;
  first_ms_of_launch = ms_of_launch;
}

void set_kernels(bool compiled) { our_kernels.compiled = compiled; }
void offer(bool offered) { our_kernels.offered = offered; }

Queues& queues(int device) { return parts_of(device).queues; }
Memory& memory(int device) { return parts_of(device).memory; }
Queues& queues() { return queues(device_of_thread); }
Memory& memory() { return memory(device_of_thread); }

int current_device() { return device_of_thread; }
Queues::StreamId current_stream() { return stream_on(device_of_thread); }

OnDevice::OnDevice(int device) : before_(std::exchange(device_of_thread, device)) {}
OnDevice::~OnDevice() { device_of_thread = before_; }

}  // namespace athanor::guarded
