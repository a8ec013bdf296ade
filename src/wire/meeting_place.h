#pragma once
// A place where the processes of a job leave short texts for one another, before they have connections.
//
// comm/store_meeting.h implements it over the store of libtorch, and tests over a map.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace athanor::comm {

/// Its functions may be called by one thread at a time. They throw std::runtime_error if the place is gone.
class MeetingPlace {
 public:
  virtual ~MeetingPlace() = default;
  virtual std::string name() const = 0;  ///< where it is, for messages: "node1:29500"
  virtual void set(const std::string& key, const std::string& text) = 0;
  /// Returns nothing if no process has set the text within `patience`; 0 does not wait.
  virtual std::optional<std::string> get(const std::string& key, std::chrono::milliseconds patience) = 0;
  /// Adds 1 to a number that is 0 at first, and returns the sum.
  virtual int64_t count(const std::string& key) = 0;
};

/// The times at which a rank that waits reports it: after a first time, and again whenever the wait has doubled, so
/// that a log stays short.
class WaitReports {
 public:
  explicit WaitReports(std::chrono::milliseconds first) : next_(first) {}
  /// True if the next time has come.
  bool now();
  std::chrono::milliseconds until_next() const { return std::max(next_ - elapsed(), std::chrono::milliseconds(0)); }
  std::chrono::seconds waited() const { return std::chrono::duration_cast<std::chrono::seconds>(elapsed()); }

 private:
  std::chrono::milliseconds elapsed() const {
    return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - begin_);
  }
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::chrono::milliseconds next_;
};

inline constexpr std::chrono::milliseconds kFirstReport{10'000};
/// The end of a message about ranks that did not come.
inline constexpr const char* kHowLong = "A run waits for parallelism.collective_timeout_s, and at least for 60 s";

/// A rank that comes to a meeting.
struct Comer {
  int rank = 0, size = 1;
  std::string host;  ///< for messages
  std::string text;  ///< that others can read
};

/// Leaves this rank's text and waits for all ranks. Collective over the job. Each rank sends eight requests. The rank
/// that came first looks for the missing ones after `first_report` and logs them, and again whenever the wait has
/// doubled; if some do not come in time, another one looks for each of them once.
/// @return the number of the job, which was drawn for this meeting.
/// @throws ToldError on all that wait as soon as the patience of one has ended: that one has logged which ranks have
/// not
///         come. ConfigError on all that wait if two have
///         the same rank or other sizes. If the meeting was complete before, only the one that came too much gets it.
uint64_t meet(MeetingPlace& place, const Comer& me, std::chrono::milliseconds patience,
              std::chrono::milliseconds first_report = kFirstReport);

/// Returns the text of a rank, after the meeting.
std::string text_of(MeetingPlace& place, int rank);

}  // namespace athanor::comm
