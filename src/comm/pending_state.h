#pragma once
// What a collective is while it runs: shared by the communicator, which starts it, and Pending, which waits for it.

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "comm/call.h"
#include "comm/communicator.h"
#include "comm/watches.h"

namespace athanor::comm {

/// Returns "all_reduce of 4 elements … (number 3) of group data".
std::string what_of(const CallRecord& record, const std::string& group);

struct Pending::State {
  using Work = c10::intrusive_ptr<c10d::Work>;

  std::string group;
  CallRecord record;
  std::shared_ptr<const std::vector<std::string>> names;  ///< names of the members
  std::chrono::milliseconds timeout;
  std::shared_ptr<Traffic> traffic;
  bool on_device = false;
  Work work;
  std::shared_ptr<DeviceCall> noted;   ///< on a device, unless it is a message
  std::shared_ptr<StallWatch> stalls;  ///< on a device; may be null
  Work check;                          ///< the collective of the records, in check mode
  Tensor records;                      ///< records of all members, once `check` is complete
  std::string disagrees;               ///< how the records disagree
  int64_t in_flight = 0;               ///< this call's part of Traffic::in_flight
  board::Publisher board;
  int board_group = -1, peer = -1;  ///< index of the group on the board; the other rank of a message, in the world
  std::shared_ptr<SpanLog> spans;   ///< null if calls log no spans
  size_t flight = SpanLog::kNone;

  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() { leave_flight(); }

  void enter_flight();
  void leave_flight();
  void begin_span();
  Span span(Span::Row row, const char* prefix) const;
  /// Returns whether the records have come, if they are compared.
  bool checked();
  void finish_check();
  void queue_wait();
  void wait_for(Work& one);
};

}  // namespace athanor::comm
