#include "ops/graph.h"

#include <atomic>

#include "ops/device/on_stream.h"

namespace athanor::ops {
namespace {

std::atomic<bool> recording{false};

// Sets `recording` while it lives.
struct Recording {
  Recording() { ATHANOR_ASSERT(!recording.exchange(true)); }
  ~Recording() { recording = false; }
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;
};

std::function<void()> record_on_played(const std::function<void()>& body) {
  auto* played = kernels::cuda::played_device();
  played->begin_capture();
  try {
    body();
  } catch (...) {
    played->end_capture();
    throw;
  }
  return played->end_capture();
}

}  // namespace

bool Graph::exists_on(at::Device device) {
  return device.is_cuda() || (device.is_privateuseone() && kernels::cuda::played_device() != nullptr);
}

bool Graph::is_recording() { return recording; }

Graph::Graph(at::Device on, const std::function<void()>& body) {
  ATHANOR_CHECK_AS(Error, exists_on(on), "there are no graphs on {}", on.str());
  const Recording now;
  launch_ = on.is_cuda() ? device::record_on_cuda(on, body) : record_on_played(body);
}

Graph::~Graph() = default;
Graph::Graph(Graph&&) noexcept = default;
Graph& Graph::operator=(Graph&&) noexcept = default;

void Graph::launch() { launch_(); }

}  // namespace athanor::ops
