// What libtorch asks of a device: the current stream of a thread, events, and memory.

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <cstdlib>
#include <mutex>
#include <string_view>

#include "base/error.h"
#include "guarded/device.h"
#include "guarded/ops.h"
#include "kernels/cuda/stream.h"

namespace athanor::guarded {
namespace {

thread_local Queues::StreamId stream_of_thread = 0;

at::Device only_device() { return kDevice; }

c10::Stream stream_with(Queues::StreamId id) { return c10::Stream(c10::Stream::UNSAFE, only_device(), id); }

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return at::kPrivateUse1; }
  c10::Device exchangeDevice(c10::Device) const override { return only_device(); }
  c10::Device getDevice() const override { return only_device(); }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }

  c10::Stream getStream(c10::Device) const override { return stream_with(stream_of_thread); }
  c10::Stream getDefaultStream(c10::Device) const override { return stream_with(0); }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override { return getNewStream(device); }
  c10::Stream getNewStream(c10::Device, int = 0) const override {
    static std::atomic<Queues::StreamId> last{0};
    return stream_with(++last);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    return stream_with(std::exchange(stream_of_thread, stream.id()));
  }
  bool queryStream(const c10::Stream& stream) const override { return queues().query(stream.id()); }
  void synchronizeStream(const c10::Stream& stream) const override { queues().synchronize(stream.id()); }
  void synchronizeDevice(c10::DeviceIndex) const override { queues().synchronize_all(); }

  // An event of libtorch is a pointer to a pointer of ours.
  static Queues::Event& at(void* event) { return *static_cast<Queues::Event*>(event); }
  void record(void** event, const c10::Stream& stream, c10::DeviceIndex, c10::EventFlag) const override {
    if (!*event) *event = new Queues::Event;
    at(*event) = queues().record(stream.id());
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event) queues().block(stream.id(), at(event));
  }
  bool queryEvent(void* event) const override { return !event || queues().query(at(event)); }
  void synchronizeEvent(void* event) const override {
    if (event) queues().synchronize(at(event));
  }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override {
    delete static_cast<Queues::Event*>(event);
  }
  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    if (data.get()) memory().note_use(data.get(), stream.id());
  }
};

struct DeviceAllocator final : c10::DeviceAllocator {
  c10::DataPtr allocate(size_t num_bytes) override {
    if (num_bytes == 0) return {nullptr, only_device()};
    void* closed = memory().allocate(num_bytes, stream_of_thread);
    TORCH_CHECK_WITH(OutOfMemoryError, closed, why_not(num_bytes));
    return {closed, closed, &release, only_device()};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t num_bytes) const override {
    queues().submit(
        stream_of_thread, "copy_data",
        [to = memory().open(static_cast<std::byte*>(to)), from = memory().open(static_cast<const std::byte*>(from)),
         num_bytes] { std::copy_n(from, num_bytes, to); });
  }

  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t = {0, 0}) override {}  // what is kept for reuse has no other use here
  void recordStream(const c10::DataPtr& data, c10::Stream stream) override {
    if (data.get()) memory().note_use(data.get(), stream.id());
  }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex) override {
    c10::CachingDeviceAllocator::DeviceStats stats;
    stats.allocated_bytes[0].current = static_cast<int64_t>(memory().allocated());
    stats.allocated_bytes[0].peak = static_cast<int64_t>(memory().peak());
    stats.reserved_bytes[0].current = static_cast<int64_t>(memory().taken());
    return stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex) override {}
  void resetPeakStats(c10::DeviceIndex) override { memory().reset_peak(); }

 private:
  static void release(void* closed) { memory().free(closed); }

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
  c10::DeviceIndex deviceCount() const override { return 1; }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  void setCurrentDevice(c10::DeviceIndex) const override {}
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex) const override { return 0; }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex) const override { return 0; }
  at::Device getDeviceFromPtr(void*) const override { return only_device(); }
  bool isPinnedPtr(const void* data) const override { return PinnedAllocator::is_pinned(data); }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override {
    static const auto generator = at::detail::createCPUGenerator();  // at::manual_seed asks each device
    return generator;
  }
  at::Allocator* getPinnedMemoryAllocator() const override { return &pinned; }

  static inline PinnedAllocator pinned;
};

// Our kernels, played.
struct Kernels final : kernels::cuda::PlayedDevice {
  void submit(const char* kernel, std::function<void()> work) override {
    queues().submit(stream_of_thread, kernel, std::move(work));
  }
  void* open(void* address) const override { return memory().open(static_cast<std::byte*>(address)); }
  bool has_kernels() const override { return compiled; }
  bool is_offered() const override { return offered; }
  int64_t free_bytes() const override { return static_cast<int64_t>(memory().free_bytes()); }
  int64_t total_bytes() const override {
    return free_bytes() + static_cast<int64_t>(memory().allocated() + memory().free_pooled());
  }
  int64_t num_launches() const override { return queues().counts().launches; }

  void begin_capture() override {
    queues().begin_capture(stream_of_thread);
    pool = memory().begin_pool(stream_of_thread);
  }
  std::function<void()> end_capture() override {
    memory().end_pool();
    // The pool is released with the last copy of the function.
    const std::shared_ptr<void> kept(nullptr, [captured = pool](void*) { memory().release_pool(captured); });
    const auto recording = std::make_shared<Queues::Recording>(queues().end_capture());
    return [recording, kept] { queues().replay(stream_of_thread, *recording); };
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
    kernels::cuda::set_played_device(&our_kernels);
    register_ops();
  });
}

void set_kernels(bool compiled) { our_kernels.compiled = compiled; }
void offer(bool offered) { our_kernels.offered = offered; }

// They live as long as the process: tensors in other static objects may outlive any that is destroyed.
Queues& queues() {
  static auto& it = *new Queues;
  return it;
}

Memory& memory() {
  static auto& it = *new Memory(queues());
  return it;
}

Queues::StreamId current_stream() { return stream_of_thread; }

}  // namespace athanor::guarded
