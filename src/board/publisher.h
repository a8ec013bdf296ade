#pragma once
// How a rank writes its record on the board.
//
// A Publisher is one pointer. Without a board it is null, and every call is one comparison. With one, a call is a few
// stores to a cache line that only this process writes, and a reading of the clock. The kernel serves that without a
// system call (vDSO). Nothing waits, allocates or throws.
//
// One thread at a time publishes: the one that trains, or the one that runs backward for it. If two did so at the same
// moment, one change could be lost or mixed with the other until the next change; nothing else would follow.

#include <time.h>

#include <span>
#include <string_view>

#include "base/collective.h"
#include "board/phase.h"
#include "board/record.h"

namespace athanor::board {

/// Returns CLOCK_MONOTONIC in nanoseconds.
inline int64_t clock_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

class Publisher {
 public:
  Publisher() = default;  ///< publishes nothing
  explicit Publisher(Record* record) : record_(record) {}

  explicit operator bool() const { return record_ != nullptr; }

  /// The run has begun: its checks have passed, and its folder may be written.
  void begin_attempt(int64_t attempt) const {
    if (record_) record_->identity.attempt.store(attempt, std::memory_order_release);
  }

  void set_step(int64_t step) const {
    change([=](LiveState& live, int64_t) { live.step.store(step, std::memory_order_relaxed); });
  }

  /// @param microbatch  −1 outside of forward and backward.
  void set_phase(Phase phase, int microbatch = -1) const {
    change([=](LiveState& live, int64_t now) {
      live.phase.store(static_cast<uint32_t>(phase), std::memory_order_relaxed);
      live.microbatch.store(microbatch, std::memory_order_relaxed);
      live.phase_ns.store(now, std::memory_order_relaxed);
    });
  }

  /// Enters a group in the table. Ranks of one group make their groups in the same order.
  /// @param members  their ranks in the job, in the group's order.
  /// @param kind  distinguishes groups with equal names and members: "host" or "device".
  /// @return its index; −1 without a board, or if the table is full.
  int add_group(std::string_view name, std::span<const int> members, std::string_view kind) const;
  void remove_group(int group) const {
    if (record_ && group >= 0) record_->groups[group].identity.store(0, std::memory_order_release);
  }

  /// The rank starts a collective: `count` of the group's have been started with it.
  void start_collective(int group, int64_t count) const {
    if (record_ && group >= 0) record_->started[group].store(count, std::memory_order_relaxed);
  }
  /// From now on the rank does nothing until this call is complete.
  /// @param peer  the other rank of a message, by its number in the job; −1 for a collective.
  void begin_wait(int group, int64_t number, Collective kind, int peer) const {
    if (group < 0) return;
    change([=](LiveState& live, int64_t) {
      live.wait_number.store(number, std::memory_order_relaxed);
      live.wait_kind.store(static_cast<int32_t>(kind), std::memory_order_relaxed);
      live.wait_peer.store(peer, std::memory_order_relaxed);
      live.wait_group.store(group, std::memory_order_relaxed);
    });
  }
  void end_wait() const {
    change([](LiveState& live, int64_t) { live.wait_group.store(-1, std::memory_order_relaxed); });
  }

 private:
  template <class Change>
  void change(Change change) const {
    if (!record_) return;
    LiveState& live = record_->live;
    const uint32_t sequence = live.sequence.load(std::memory_order_relaxed);
    if (sequence % 2 == 1) return;  // another thread of this process is at it
    const int64_t now = clock_ns();
    live.sequence.store(sequence + 1, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);
    change(live, now);
    live.changed_ns.store(now, std::memory_order_relaxed);
    live.sequence.store(sequence + 2, std::memory_order_release);
  }

  Record* record_ = nullptr;
};

/// Marks a wait for as long as it lives.
class Waiting {
 public:
  Waiting(Publisher board, int group, int64_t number, Collective kind, int peer)
      : board_(board), is_shown_(group >= 0) {
    board_.begin_wait(group, number, kind, peer);
  }
  ~Waiting() {
    if (is_shown_) board_.end_wait();
  }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

 private:
  Publisher board_;
  bool is_shown_;
};

/// A group's entry in the table for as long as the group lives.
class GroupEntry {
 public:
  GroupEntry() = default;
  GroupEntry(Publisher board, std::string_view name, std::span<const int> members, std::string_view kind)
      : board_(board), index_(board.add_group(name, members, kind)) {}
  ~GroupEntry() { board_.remove_group(index_); }
  GroupEntry(const GroupEntry&) = delete;
  GroupEntry& operator=(const GroupEntry&) = delete;

  int index() const { return index_; }
  Publisher board() const { return board_; }
  void start_collective(int64_t count) const { board_.start_collective(index_, count); }

 private:
  Publisher board_;
  int index_ = -1;
};

}  // namespace athanor::board
