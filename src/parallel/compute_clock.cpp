#include "parallel/compute_clock.h"

#include <c10/core/impl/VirtualGuardImpl.h>

namespace athanor::inline parallel {
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

std::vector<TimedPairs::Between> TimedPairs::since_first_of(const TimedPairs& other) const {
  std::vector<Between> found;
  for (size_t i = 0; i < used_; ++i) {
    const auto& [begin, end] = pairs_[i];
    if (!begin.query() || !end.query()) return {};
    const c10::Event& zero = other.pairs_.at(0).begin;
    // An event has no time since itself.
    const double begin_ms = &zero == &begin ? 0 : zero.elapsedTime(begin);
    found.push_back({1e-3 * begin_ms, 1e-3 * (begin_ms + begin.elapsedTime(end))});
  }
  return found;
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
  began_ns_ = span_clock_ns();
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

void ComputeClock::add_spans(SpanLog& log) const {
  const auto add = [&](const char* name, const TimedPairs& pairs) {
    const auto at = [&](double seconds) { return began_ns_ + static_cast<int64_t>(1e9 * seconds); };
    for (const auto& [begin_s, end_s] : pairs.since_first_of(spans_))
      log.add({Span::Row::kDevice, name, "device", at(begin_s), at(end_s)});
  };
  try {
    add("compute", spans_);
    add("wait for other ranks", stalls_);
  } catch (const c10::Error&) {
    return;  // as seconds()
  }
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

}  // namespace athanor::inline parallel
