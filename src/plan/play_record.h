#pragma once
// What a rank's step computes, holds and sends, in order.

#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <variant>
#include <vector>

#include "comm/watches.h"
#include "ops/played.h"
#include "parallel/mesh.h"
#include "train/run_phases.h"

namespace athanor::inline plan {

/// A tensor's memory is taken (positive) or given back (negative).
struct MemoryChange {
  int64_t bytes;
};

/// A collective, or a message between two ranks.
struct SentMessage {
  GroupKind group;
  comm::SentCall call;
};

using StepEvent = std::variant<ops::Op, MemoryChange, SentMessage>;

/// The calls of one kind of collective in one kind of group, for one purpose.
struct SentKind {
  TrafficPurpose purpose;
  GroupKind group;
  Collective collective;
  int peer;  ///< as in SentCall
  auto operator<=>(const SentKind&) const = default;
};
struct SentTotal {
  int64_t calls = 0, bytes = 0, inside = 0;
};

/// A phase of a step: from its first event to that of the next phase. Memory is all that is in use.
struct PlayedPhase {
  board::Phase phase;
  size_t first_event;
  int64_t bytes_before, peak_bytes;
};

/// Records events, and adds them up. Groups of one rank send nothing, and are left out.
class PlayRecord : public ops::Recorder, public comm::TrafficWatch, public PhaseWatcher {
 public:
  /// @param block_of  returns the bytes that the allocator takes for a tensor of that number of bytes.
  explicit PlayRecord(std::function<int64_t(int64_t bytes)> block_of) : block_of_(std::move(block_of)) {}

  void computed(const ops::Op& op) override;
  void allocated(int64_t bytes) override { change(block_of_(bytes)); }
  void freed(int64_t bytes) override { change(-block_of_(bytes)); }
  void sends(const comm::Communicator& group, const comm::SentCall& call) override;
  void begins(board::Phase phase) override;

  /// Watches the calls of a mesh, which must not be used after the record has ended. Group kinds may share ranks.
  void watch(const Mesh& mesh);
  /// Forgets the events so far. The memory that is in use stays.
  void begin();

  const std::vector<StepEvent>& events() const { return events_; }
  const std::vector<PlayedPhase>& phases() const { return phases_; }  ///< in order; each microbatch has its own
  int64_t bytes_in_use() const { return bytes_in_use_; }
  int64_t peak_bytes() const { return peak_bytes_; }  ///< the most in use since begin()
  double flops() const { return flops_; }
  const std::map<SentKind, SentTotal>& sent() const { return sent_; }
  int64_t bytes_sent(GroupKind group) const;

 private:
  void change(int64_t bytes);

  std::function<int64_t(int64_t)> block_of_;
  std::map<const comm::Communicator*, GroupKind> kinds_;
  std::vector<StepEvent> events_;
  std::vector<PlayedPhase> phases_;
  int64_t bytes_in_use_ = 0, peak_bytes_ = 0;
  double flops_ = 0;
  std::map<SentKind, SentTotal> sent_;
};

}  // namespace athanor::inline plan
