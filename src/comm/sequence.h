#pragma once
// Operations that their ranks start in one order: the collectives of a group, what goes to one of its members, what
// comes from one.
//
// A window slides over them. An operation begins when all that stand kWindow or more before it are over; until then it
// waits in line and posts nothing. Nothing hangs by this: of the operations that are over somewhere but not everywhere
// the first has begun on every rank that has started it, and waits for no other. And so a tag is one operation's alone
// on a rank while it is under way, and messages that one rank sends another under one tag are received in the order in
// which they were sent, whatever their operations.

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "comm/operation.h"

namespace athanor::comm {

enum class Kind : int32_t { kCollective, kSend, kReceive };

class Sequence {
 public:
  static constexpr int64_t kWindow = 16;  ///< a latency's worth of small ones; of large ones two fill a network
  static constexpr int kMaxPhases = 2;
  /// Of a group: one for each place in the window and phase of its collectives, and one for each place between pairs
  /// (the two directions of a pair are told apart by sender and receiver).
  static constexpr int64_t kTags = (kMaxPhases + 1) * kWindow;
  /// Beside the oldest, none begins while those under way hold so much beside their tensors.
  static constexpr int64_t kScratchBytes = 64 << 20;

  /// @param peer  the other member of a pair; −1 for collectives.
  Sequence(int64_t first_tag, Kind kind, int peer) : first_tag_(first_tag), kind_(kind), peer_(peer) {}
  Sequence(const Sequence&) = delete;
  Sequence& operator=(const Sequence&) = delete;

  Kind kind() const { return kind_; }
  int peer() const { return peer_; }
  int num_phases() const { return kind_ == Kind::kCollective ? kMaxPhases : 1; }
  int64_t num_started() const { return first_ + static_cast<int64_t>(line_.size()); }

  void start(std::shared_ptr<Operation> operation);
  /// Drops those that are over, and begins those whose turn it is. How many were dropped.
  int advance(Wire& wire);
  /// What goes wrong once goes wrong for all that come later: they could meet messages of the one that failed.
  void fail(const std::string& error);

  int tag_of(const Operation& operation, int phase) const;
  /// What number `number` waits for: itself if it has begun, the oldest otherwise. Null: it is over.
  const Operation* holding_up(int64_t number) const;

 private:
  bool has_room() const;

  int64_t first_tag_;
  Kind kind_;
  int peer_;
  int64_t first_ = 0;                            ///< number of the oldest in line_
  std::deque<std::shared_ptr<Operation>> line_;  ///< the first num_begun_ have begun, some of them are over
  size_t num_begun_ = 0;
  std::array<bool, kWindow> taken_{};  ///< by an operation under way: places in the window, which are tags
  std::string failure_;
};

/// The ranks of a group, and what they do together.
struct Members {
  Members(std::string group_name, std::vector<int> ranks, int own_index, int64_t group_id);

  int size() const { return static_cast<int>(wire_ranks.size()); }
  /// Of messages to or from a member; pairs are few, and so have none before their first.
  Sequence& between(Kind kind, int peer);
  /// The same, or null; −1: of the collectives.
  Sequence* find(Kind kind, int peer);
  static int64_t num_groups(int max_tag) { return (int64_t{max_tag} + 1) / Sequence::kTags; }

  std::string name;
  int64_t id;  ///< of the group, the same on all its members
  std::vector<int> wire_ranks;
  int index;  ///< of this process
  std::unique_ptr<std::atomic<int64_t>[]> bytes_sent;

  // Under the lock of Progress.
  Sequence collectives;
  std::map<std::pair<Kind, int>, Sequence> pairs;
  std::thread::id thread;  ///< that started the latest
};

}  // namespace athanor::comm
