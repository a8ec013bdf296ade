#include "ops/transfer.h"

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "ops/graph.h"

namespace athanor::ops {
namespace {

std::atomic<int64_t> to_device{0}, to_host{0}, waits{0};

at::TensorOptions pinned(at::ScalarType dtype) { return at::TensorOptions(dtype).pinned_memory(true); }

c10::Event event_after(at::Device device) {
  c10::Event event(device.type());
  event.record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
  return event;
}

// CUDA would end the recording with an error that does not name the cause.
void refuse_while_recording(const char* what) {
  ATHANOR_CHECK_AS(Error, !Graph::is_recording(), "{} while a graph is recorded", what);
}

thread_local const std::function<void(double)>* watch_of_thread = nullptr;

// The first look comes after a second, and then each second; the waits of ordinary steps are over before that.
void wait_under_watch(const c10::Event& event, const std::function<void(double)>& look) {
  constexpr auto kNap = std::chrono::microseconds(50);
  constexpr double kBetweenLooks = 1;
  const auto begin = std::chrono::steady_clock::now();
  for (double next = kBetweenLooks; !event.query();) {
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (seconds > next) {
      look(seconds);
      next = seconds + kBetweenLooks;
    }
    std::this_thread::sleep_for(kNap);
  }
}

void wait(const c10::Event& event) {
  refuse_while_recording("a wait for the device");
  ++waits;
  if (watch_of_thread) return wait_under_watch(event, *watch_of_thread);
  event.synchronize();
}

Tensor bytes_of(const Tensor& x) {
  ATHANOR_ASSERT(x.is_contiguous());
  return x.reshape({-1}).view(at::kByte);
}

// Blocks of pinned memory, which all threads share.
class PinnedBlocks {
 public:
  static constexpr int64_t kBlockBytes = int64_t{16} << 20;
  static constexpr int kMostBlocks = 4;

  Tensor take() {
    std::unique_lock lock(mutex_);
    returned_.wait(lock, [&] { return !free_.empty() || made_ < kMostBlocks; });
    if (free_.empty()) {
      Tensor block = at::empty({kBlockBytes}, pinned(at::kByte));
      ++made_;  // not if there was no memory: others would wait for a block that does not exist
      return block;
    }
    const Tensor block = free_.back();
    free_.pop_back();
    return block;
  }

  void give_back(const Tensor& block) {
    const std::lock_guard lock(mutex_);
    free_.push_back(block);
    returned_.notify_one();
  }

 private:
  std::mutex mutex_;
  std::condition_variable returned_;
  std::vector<Tensor> free_;  // guarded by mutex_
  int made_ = 0;              // guarded by mutex_
};

// It lives as long as the process: the library that pinned memory comes from may be gone before static objects are.
PinnedBlocks& pinned_blocks() {
  static auto& blocks = *new PinnedBlocks;
  return blocks;
}

// Calls f(block, begin, size) for parts of num_bytes that fit in a pinned block, each in another block.
template <class F>
void through_pinned(int64_t num_bytes, F f) {
  for (int64_t begin = 0; begin < num_bytes; begin += PinnedBlocks::kBlockBytes) {
    const int64_t size = std::min(PinnedBlocks::kBlockBytes, num_bytes - begin);
    const Tensor block = pinned_blocks().take();
    try {
      f(block.narrow(0, 0, size), begin);
    } catch (...) {
      pinned_blocks().give_back(block);
      throw;
    }
    pinned_blocks().give_back(block);
  }
}

}  // namespace

WaitWatch::WaitWatch(std::function<void(double)> look) : look_(std::move(look)) {
  ATHANOR_ASSERT(!watch_of_thread);
  watch_of_thread = &look_;
}
WaitWatch::~WaitWatch() { watch_of_thread = nullptr; }

TransferCounts transfer_counts() { return {to_device, to_host, waits}; }

Tensor send(const Tensor& x, at::Device device) {
  if (device.is_cpu() || !x.is_cpu()) return x;
  if (device.is_meta()) return at::empty(x.sizes(), x.options().device(device));
  refuse_while_recording("a copy to the device");
  // libtorch's allocators of pinned memory keep a block until the copies from it are done.
  const Tensor staged = at::empty(x.sizes(), pinned(x.scalar_type()));
  staged.copy_(x);
  const Tensor there = at::empty(x.sizes(), x.options().device(device).pinned_memory(std::nullopt));
  ++to_device;
  there.copy_(staged, /*non_blocking=*/true);
  return there;
}

void send_bytes(const Tensor& to, const void* from) {
  if (to.is_cpu()) {
    std::memcpy(to.data_ptr(), from, to.nbytes());
    return;
  }
  const Tensor bytes = bytes_of(to);
  through_pinned(bytes.numel(), [&](const Tensor& block, int64_t begin) {
    std::memcpy(block.data_ptr(), static_cast<const std::byte*>(from) + begin, block.nbytes());
    ++to_device;
    bytes.narrow(0, begin, block.numel()).copy_(block, /*non_blocking=*/true);
    wait(event_after(to.device()));  // the block is used again
  });
}

void fetch_bytes(const Tensor& x, void* out) {
  ATHANOR_ASSERT(x.is_contiguous());
  if (x.is_cpu()) {
    std::memcpy(out, x.data_ptr(), x.nbytes());
    return;
  }
  const Tensor bytes = bytes_of(x);
  through_pinned(bytes.numel(), [&](const Tensor& block, int64_t begin) {
    ++to_host;
    block.copy_(bytes.narrow(0, begin, block.numel()), /*non_blocking=*/true);
    wait(event_after(x.device()));
    std::memcpy(static_cast<std::byte*>(out) + begin, block.data_ptr(), block.nbytes());
  });
}

Fetch::Fetch(const Tensor& x) {
  if (x.is_cpu()) {
    on_host_ = x;
    return;
  }
  if (x.is_meta()) {
    on_host_ = at::ones(x.sizes(), x.scalar_type());
    return;
  }
  refuse_while_recording("a copy to the host");
  on_host_ = at::empty(x.sizes(), pinned(x.scalar_type()));
  ++to_host;
  on_host_.copy_(x.detach(), /*non_blocking=*/true);
  copied_ = event_after(x.device());
}

const Tensor& Fetch::get() {
  if (copied_) wait(*copied_);
  copied_.reset();
  return on_host_;
}

Tensor view_of(std::span<float> values) {
  return at::from_blob(values.data(), {std::ssize(values)}, at::TensorOptions(at::kFloat));
}

Tensor empty_on_host(int64_t count, at::Device device) {
  return at::empty({count}, at::TensorOptions(at::kFloat).pinned_memory(!device.is_cpu()));
}

float* fp32_on_host(const Tensor& x) {
  return x.is_cpu() && x.scalar_type() == at::kFloat ? x.data_ptr<float>() : nullptr;
}

FetchAside::FetchAside(at::Device device) : device_(device) {
  if (!device.is_cpu()) stream_ = c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device, false);
}

void FetchAside::run(const std::function<void()>& queue) {
  if (!stream_) return queue();
  refuse_while_recording("a copy to the host");
  event_after(device_).block(*stream_);
  const c10::StreamGuard on_stream(*stream_);
  queue();
  copied_ = event_after(device_);
}

void FetchAside::copy(const Tensor& x, const Tensor& on_host) {
  if (!x.is_cpu()) ++to_host;
  on_host.copy_(x, /*non_blocking=*/true);
}

FetchAside::Copies FetchAside::copies_of(const Tensor& memory,
                                         std::function<Tensor(int64_t first, int64_t count)> part) {
  if (memory.is_cpu()) return {};
  return [part = std::move(part)](int64_t first, std::span<float> pinned) {
    copy(part(first, std::ssize(pinned)), view_of(pinned));
  };
}

void FetchAside::follow() const {
  if (copied_) copied_->block(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
}

bool FetchAside::done() const { return !copied_ || copied_->query(); }

void wait_for(at::Device device) {
  if (on_host(device)) return;
  wait(event_after(device));
}

void fetch_together(std::span<Tensor* const> tensors) {
  std::vector<Tensor*> there;
  for (Tensor* each : tensors) {
    if (each->is_meta()) *each = at::ones(each->sizes(), each->scalar_type());
    if (!each->is_cpu()) there.push_back(each);
  }
  if (!there.empty()) unpack_numbers(fetch(pack_numbers(there)).clone(), there);
}

Tensor pack_numbers(std::span<Tensor* const> tensors) {
  std::vector<Tensor> all;
  for (const Tensor* tensor : tensors) all.push_back(tensor->contiguous().view(at::kLong).reshape({-1}));
  return at::cat(all);
}

void unpack_numbers(const Tensor& packed, std::span<Tensor* const> tensors) {
  int64_t begin = 0;
  for (Tensor* tensor : tensors) {
    const Tensor values = packed.narrow(0, std::exchange(begin, begin + tensor->numel()), tensor->numel());
    *tensor = values.view(tensor->scalar_type()).view(tensor->sizes());
  }
}

}  // namespace athanor::ops
