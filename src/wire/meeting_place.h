#pragma once
// A place where the processes of a job leave short texts for one another, before they have connections.
//
// comm/store_meeting.h implements it over the store of libtorch, and tests over a map.

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

/// Leaves this rank's text and waits for all ranks. Collective over the job. Each rank sends five requests; only if
/// some ranks do not come in time, one of those that have come looks for each of the others.
/// @return the number of the job, which was drawn for this meeting.
/// @throws CommError naming the ranks that have not come within `patience`.
uint64_t meet(MeetingPlace& place, int rank, int size, const std::string& text, std::chrono::milliseconds patience);

/// Returns the text of a rank, after the meeting.
std::string text_of(MeetingPlace& place, int rank);

}  // namespace athanor::comm
