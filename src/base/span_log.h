#pragma once
// What the threads of a rank did when, for the trace of one step (metrics/step_trace.h).
//
// A log keeps nothing until start(), and a call costs a comparison until then. Any thread may call it.

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace athanor {

/// Returns the clock of the spans: nanoseconds of std::chrono::steady_clock.
int64_t span_clock_ns();

struct Span {
  enum class Row : uint8_t {
    kTraining,  ///< the thread that trains; its spans lie within one another
    kFlight,    ///< collectives and messages from their start until they are complete; they may overlap
    kReading,   ///< the threads that read batches ahead
    kSaving,    ///< the thread that writes checkpoints
    kDevice,    ///< the stream of a device that computes
  };
  Row row = Row::kTraining;
  std::string name, category;
  int64_t begin_ns = 0, end_ns = 0;
  std::vector<std::pair<const char*, int64_t>> numbers = {};  ///< shown with the span, by name
};

class SpanLog {
 public:
  /// More spans are counted, and not kept, except those of open_always().
  static constexpr size_t kMostSpans = 20'000;
  static constexpr size_t kNone = ~size_t{0};

  bool is_on() const { return on_.load(std::memory_order_acquire); }
  /// Forgets what there is, and keeps spans from now on.
  /// @param begin_ns  since when; 0: now. What has ended by then is left out.
  void start(int64_t begin_ns = 0);
  /// Adds a span that has ended.
  void add(Span span);
  /// Adds one that lasts until close(), or else until stop(). @return its index; kNone if it is not kept.
  size_t open(Span span);
  /// As open(), for spans that are few and show where the others belong: phases, and actions of a pipeline.
  size_t open_always(Span span);
  /// @param end_ns  0: now. Does nothing for kNone, and for an index from before the last start().
  void close(size_t index, int64_t end_ns = 0);

  struct Spans {
    int64_t begin_ns = 0, end_ns = 0;  ///< when start() and stop() were called
    std::vector<Span> spans;           ///< those that begin before start() begin with it
    int64_t num_left_out = 0;
  };
  Spans stop();

 private:
  size_t put(Span span, size_t most);

  std::atomic<bool> on_{false};
  std::mutex mutex_;
  size_t first_ = 0;  // index of the first span since the last start()
  Spans kept_;
};

}  // namespace athanor
