#pragma once
// A rank's state in a call, which others ask for to find out whom they wait for: whether the rank has come to the call,
// for whom it waits at present, and when it last completed some work.

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "wire/sequence.h"

namespace athanor::comm {

/// A collective, or a message between two ranks, as one of its ranks identifies it.
struct CallId {
  int64_t group = 0, number = 0;  ///< Members::id; the number in its sequence, from 0
  Kind kind = Kind::kCollective;
  int32_t partner = -1;  ///< rank in the world at the other end of a message; −1 for a collective

  auto operator<=>(const CallId&) const = default;
};

/// The content of a message: of one size, without pointers.
struct Answer {
  enum class State : int32_t {
    kSilent,    ///< no answer has come
    kLate,      ///< the rank has not come to the call, and waits for no other
    kWaits,     ///< it waits for others: in this call, or in another one before it comes to this
    kComplete,  ///< the call is complete on this rank; what it had to send is on its way
  };
  static constexpr int kMaxPeers = 16;
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

  State state = State::kSilent;
  int32_t num_peers = 0;
  int64_t worked = 0;                      ///< the total that World::note_work has added so far
  int64_t still_ms = kNever;               ///< time since this count last grew, or a long wait ended
  CallId call;                             ///< the call that it waits in
  std::array<int32_t, kMaxPeers> peers{};  ///< some of those it waits for there, ranks in the world
  std::array<char, 32> group{};            ///< that call's group, truncated
};

/// This rank's state. Runs under the lock of MessagePump, except note_work.
class RankState {
 public:
  using Clock = std::chrono::steady_clock;

  explicit RankState(int rank) : rank_(rank) {}

  void enroll(const std::shared_ptr<Members>& members) { groups_[members->id] = members; }
  void note_work(int64_t amount);

  void begin_wait(const Operation& operation) {
    waits_.push_back({std::this_thread::get_id(), &operation});
    given_up_.reset();
  }
  /// @param was_long  others may have waited for this rank meanwhile; it now continues.
  /// @param gave_up   the operation isn't complete. Until the rank does some work or waits again, it answers that it
  ///                  waits, so that those whose patience ends a moment later don't take it for the late one.
  void end_wait(const Operation& operation, bool was_long, bool gave_up);

  /// Returns this rank's state in a call, in which it may not have come.
  Answer answer(const CallId& call) const;
  /// Returns this rank's state in an incomplete operation that it takes part in.
  Answer waits_for(const Operation& operation) const;
  int rank() const { return rank_; }

 private:
  struct Wait {
    std::thread::id thread;
    const Operation* operation;
  };
  const Operation* wait_before(const Members* members) const;

  int rank_;
  std::map<int64_t, std::weak_ptr<Members>> groups_;
  std::vector<Wait> waits_;
  std::optional<Answer> given_up_;  ///< the wait that ended last, if it ended without success
  std::atomic<int64_t> worked_ = 0;
  std::atomic<Clock::time_point> last_move_{Clock::time_point::min()};
};

/// Returns the CallId that the rank at the other end, the peer, has for a call of `rank`.
inline CallId seen_from_peer(CallId call, int rank) {
  if (call.kind != Kind::kCollective) {
    call.kind = call.kind == Kind::kSend ? Kind::kReceive : Kind::kSend;
    call.partner = rank;
  }
  return call;
}

}  // namespace athanor::comm
