#pragma once
// Operations that their ranks start in one order: the collectives of a group, the messages to one of its members, or
// the messages from one member.
//
// A window slides over them. An operation begins when all that are kWindow or more positions before it are complete;
// until then it is queued and posts nothing. This cannot hang: consider the operations that are not complete on
// every rank. The first of them has begun on every rank that has started it, and waits for no other. So on one rank a
// tag belongs to one operation while that is in flight. Messages that one rank sends another under one tag are received
// in the order in which they were sent, whatever their operations.

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "wire/operation.h"

namespace athanor::comm {

enum class Kind : int32_t { kCollective, kSend, kReceive };

class Sequence {
 public:
  static constexpr int64_t kWindow = 16;  ///< 16 small operations hide a latency; two large ones use all bandwidth
  static constexpr int kMaxPhases = 4;
  /// Tags of a group: one for each slot of the window and phase of its collectives, and one for each slot of the
  /// messages between pairs. The two directions of a pair differ by sender and receiver.
  static constexpr int64_t kTags = (kMaxPhases + 1) * kWindow;
  /// An operation other than the oldest does not begin while those in flight hold this many bytes in addition to
  /// their tensors.
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
  /// Drops the operations that are complete, and begins those whose turn it is. Returns how many were dropped.
  int advance(Wire& wire);
  /// A failure fails all later operations too: they could receive messages of the failed one.
  void fail(const std::string& error);

  int tag_of(const Operation& operation, int phase) const;
  /// Returns the operation that operation `number` waits for: itself if it has begun, the oldest otherwise; null if it
  /// is complete or has failed.
  const Operation* holding_up(int64_t number) const;

 private:
  bool has_room() const;

  int64_t first_tag_;
  Kind kind_;
  int peer_;
  int64_t first_ = 0;                            ///< number of the oldest in line_
  std::deque<std::shared_ptr<Operation>> line_;  ///< the first num_begun_ have begun, and some of them are complete
  size_t num_begun_ = 0;
  std::array<bool, kWindow> taken_{};  ///< slots of the window, which are tags, that an operation in flight uses
  std::string failure_;
};

/// The ranks of a group, and their operations.
struct Members {
  Members(std::string group_name, std::vector<int> ranks, int own_index, int64_t group_id);

  int size() const { return static_cast<int>(wire_ranks.size()); }
  /// Returns the sequence of messages to or from a member, and creates it at the first call: pairs are few.
  Sequence& between(Kind kind, int peer);
  /// Returns that sequence, or null if there is none; with peer −1, that of the collectives.
  Sequence* find(Kind kind, int peer);
  /// Returns how many groups have enough tags.
  static int64_t num_groups(int max_tag) { return (int64_t{max_tag} + 1) / Sequence::kTags; }

  std::string name;
  int64_t id;                                          ///< number of the group; equal on all its members
  std::vector<int> wire_ranks;                         ///< ranks of the world, in the group's order
  int index;                                           ///< index of this process in it
  std::unique_ptr<std::atomic<int64_t>[]> bytes_sent;  ///< so far, to each member

  // These members are guarded by the lock of MessagePump.
  Sequence collectives;
  std::map<std::pair<Kind, int>, Sequence> pairs;
  std::thread::id thread;  ///< the thread that started the latest operation
};

}  // namespace athanor::comm
