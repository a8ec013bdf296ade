#include "ops/graph.h"

#include <algorithm>
#include <atomic>

#include "ops/device/on_stream.h"
#include "ops/device_memory.h"

namespace athanor::ops {
namespace {

std::atomic<bool> recording{false};
std::atomic<int64_t> held_by_all{0};

// Sets `recording` while it lives.
struct Recording {
  Recording() { ATHANOR_ASSERT(!recording.exchange(true)); }
  ~Recording() { recording = false; }
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;
};

std::function<void()> record_on_guarded(const std::function<void()>& body) {
  auto* guarded = kernels::cuda::guarded_device();
  guarded->begin_capture();
  try {
    body();
  } catch (...) {
    guarded->end_capture();
    throw;
  }
  return guarded->end_capture();
}

}  // namespace

bool Graph::exists_on(at::Device device) {
  return device.is_cuda() || (device.is_privateuseone() && kernels::cuda::guarded_device() != nullptr);
}

bool Graph::is_recording() { return recording; }

Graph::Graph(at::Device on, const std::function<void()>& body) {
  ATHANOR_CHECK_AS(Error, exists_on(on), "there are no graphs on {}", on.str());
  const Recording now;
  // The graph has its own memory: what steps without it have left behind would stay unused next to it.
  release_device_memory(on);
  const int64_t before = device_memory(on)->held_bytes;
  launch_ = on.is_cuda() ? device::record_on_cuda(on, body) : record_on_guarded(body);
  held_bytes_ = std::max<int64_t>(0, device_memory(on)->held_bytes - before);
  held_by_all += held_bytes_;
}

Graph::~Graph() { held_by_all -= held_bytes_; }

void Graph::launch() { launch_(); }

int64_t Graph::held_bytes_of_all() { return held_by_all; }

}  // namespace athanor::ops
