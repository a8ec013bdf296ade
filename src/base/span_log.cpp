#include "base/span_log.h"

#include <algorithm>
#include <chrono>

namespace athanor {

int64_t span_clock_ns() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

void SpanLog::start(int64_t begin_ns) {
  const std::lock_guard lock(mutex_);
  first_ += kept_.spans.size();
  kept_ = {begin_ns != 0 ? begin_ns : span_clock_ns(), 0, {}, 0};
  on_.store(true, std::memory_order_release);
}

void SpanLog::add(Span span) { open(std::move(span)); }

size_t SpanLog::open(Span span) { return put(std::move(span), kMostSpans); }

size_t SpanLog::open_always(Span span) { return put(std::move(span), 10 * kMostSpans); }

size_t SpanLog::put(Span span, size_t most) {
  if (!is_on()) return kNone;
  const std::lock_guard lock(mutex_);
  if (!is_on()) return kNone;
  if (kept_.spans.size() >= most) {
    ++kept_.num_left_out;
    return kNone;
  }
  if (span.end_ns != 0 && span.end_ns < kept_.begin_ns) return kNone;
  span.begin_ns = std::max(span.begin_ns == 0 ? span_clock_ns() : span.begin_ns, kept_.begin_ns);
  kept_.spans.push_back(std::move(span));
  return first_ + kept_.spans.size() - 1;
}

void SpanLog::close(size_t index, int64_t end_ns) {
  if (index == kNone || !is_on()) return;
  const std::lock_guard lock(mutex_);
  if (!is_on() || index < first_ || index - first_ >= kept_.spans.size()) return;
  kept_.spans[index - first_].end_ns = end_ns != 0 ? end_ns : span_clock_ns();
}

SpanLog::Spans SpanLog::stop() {
  const std::lock_guard lock(mutex_);
  on_.store(false, std::memory_order_release);
  kept_.end_ns = span_clock_ns();
  for (Span& span : kept_.spans)
    if (span.end_ns == 0) span.end_ns = kept_.end_ns;
  first_ += kept_.spans.size();
  return std::exchange(kept_, {});
}

}  // namespace athanor
