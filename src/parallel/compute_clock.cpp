#include "parallel/compute_clock.h"

#include <c10/core/impl/VirtualGuardImpl.h>

namespace athanor {
namespace {

c10::Stream current_stream(at::Device device) { return c10::impl::VirtualGuardImpl(device.type()).getStream(device); }

}  // namespace

void TimedPairs::begin(const c10::Stream& stream) {
  if (used_ == pairs_.size()) {
    constexpr auto kWithTime = c10::EventFlag::BACKEND_DEFAULT;
    pairs_.push_back({c10::Event(device_.type(), kWithTime), c10::Event(device_.type(), kWithTime)});
  }
  pairs_[used_++].begin.record(stream);
}

void TimedPairs::end(const c10::Stream& stream) { pairs_[used_ - 1].end.record(stream); }

std::optional<double> TimedPairs::seconds() const {
  double ms = 0;
  for (size_t i = 0; i < used_; ++i) {
    const auto& [begin, end] = pairs_[i];
    if (!begin.query() || !end.query()) return std::nullopt;
    ms += begin.elapsedTime(end);
  }
  return 1e-3 * ms;
}

std::shared_ptr<ComputeClock> ComputeClock::of(const Mesh& mesh, at::Device device) {
  auto clock = std::make_shared<ComputeClock>(device);
  for (const auto& [kind, group] : mesh.groups())
    if (group->size() > 1) group->show_stalls(clock);
  return clock;
}

void ComputeClock::begin_step() {
  stream_.reset();
  spans_.clear();
  stalls_.clear();
}

void ComputeClock::start() {
  stream_ = current_stream(device_);
  spans_.begin(*stream_);
}

void ComputeClock::stop() {
  spans_.end(*stream_);
  stream_.reset();
}

// A stream that only follows collectives may wait as long as it likes.
bool ComputeClock::counts() const { return stream_ && *stream_ == current_stream(device_); }

void ComputeClock::stall_begins() {
  if (counts()) stalls_.begin(*stream_);
}

void ComputeClock::stall_ends() {
  if (counts()) stalls_.end(*stream_);
}

std::optional<double> ComputeClock::seconds() const {
  try {
    const auto spans = spans_.seconds(), stalls = stalls_.seconds();
    if (!spans || !stalls) return std::nullopt;
    return *spans - *stalls;
  } catch (const c10::Error&) {
    return std::nullopt;  // as in ReductionClock::trace
  }
}

}  // namespace athanor
