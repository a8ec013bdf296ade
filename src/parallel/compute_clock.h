#pragma once
// How long a device has computed in a step, without the time for which it waited for other ranks. The host queues a
// whole step, so that its own times show nothing of that.
//
// Events with times enclose the work of a step on the stream that computes, and each wait of that stream for a
// collective or a message. What the device did is the first less the second. It contains the gaps in which the stream
// had no work because the host was late, which are as much this rank's as its kernels. Work on other streams
// (collectives, copies to the host) counts only as far as it slows down this one.
//
// A step records 4 events, and 2 for each wait, each in about a microsecond of the host; reading a pair takes some
// microseconds when the step has ended. The host never waits for them, and they are used again in the next step.

#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <memory>
#include <optional>
#include <vector>

#include "base/span_log.h"
#include "comm/watches.h"
#include "parallel/mesh.h"

namespace athanor::inline parallel {

/// Pairs of events with times on a stream of a device.
class TimedPairs {
 public:
  explicit TimedPairs(at::Device device) : device_(device) {}

  /// Forgets the pairs, and keeps their events for the next ones.
  void clear() { used_ = 0; }
  void begin(const c10::Stream& stream);
  void end(const c10::Stream& stream);
  /// Returns the sum of the times between the events of each pair; nothing if one of them is not complete.
  /// @throws c10::Error if the device's library compares no times.
  std::optional<double> seconds() const;
  size_t num_made() const { return pairs_.size(); }

  struct Between {
    double begin_s, end_s;
  };
  /// Returns when each pair was on the stream, in seconds since the first event of `other`, which has one; nothing if
  /// an event is not complete. @throws as seconds().
  std::vector<Between> since_first_of(const TimedPairs& other) const;

 private:
  struct Pair {
    c10::Event begin, end;
  };
  at::Device device_;
  std::vector<Pair> pairs_;
  size_t used_ = 0;
};

class ComputeClock : public comm::StallWatch {
 public:
  explicit ComputeClock(at::Device device) : device_(device), spans_(device), stalls_(device) {}
  /// Returns a clock that sees the waits for calls of the mesh's groups from now on. The groups keep it.
  static std::shared_ptr<ComputeClock> of(const Mesh& mesh, at::Device device);

  /// A step begins.
  void begin_step();
  /// What is queued on the current stream from start() to stop() counts. A step may have several such spans.
  void start();
  void stop();

  /// Returns the seconds that the device has computed in the step; to be called when the host has waited for what came
  /// after the last span. Nothing if the device's library compares no times.
  std::optional<double> seconds() const;

  /// Logs when the device computed in the step and when it waited, under the conditions of seconds(). The clock of the
  /// device is set by the host's at the begin of the step, when the stream has no earlier work.
  void add_spans(SpanLog& log) const;

  void stall_begins() override;
  void stall_ends() override;
  /// The number of pairs of events that were made so far.
  size_t num_pairs() const { return spans_.num_made() + stalls_.num_made(); }

 private:
  bool counts() const;

  at::Device device_;
  std::optional<c10::Stream> stream_;  // between start() and stop()
  TimedPairs spans_, stalls_;
  int64_t began_ns_ = 0;  // on the host's clock
};

}  // namespace athanor::inline parallel
