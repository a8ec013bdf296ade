#pragma once
// What a process says of itself when others wonder whom they wait for: whether it has come to a call, for whom it waits
// at present, and when it last got something done.

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "comm/sequence.h"

namespace athanor::comm {

/// A collective, or a message between two, as one of its ranks knows it.
struct CallId {
  int64_t group = 0, number = 0;
  Kind kind = Kind::kCollective;
  int32_t partner = -1;  ///< rank in the world at the other end of a message; −1 for a collective

  auto operator<=>(const CallId&) const = default;
};

/// A message's content: of one size, without pointers.
struct Answer {
  enum class State : int32_t {
    kSilent,  ///< there is none
    kLate,    ///< has not come to the call, and waits for nobody
    kWaits,   ///< for others: in this call, or in another one before it comes
    kOver,    ///< of the call, on this rank; what it had to send is on its way
  };
  static constexpr int kMaxPeers = 16;
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

  State state = State::kSilent;
  int32_t num_peers = 0;
  int64_t worked = 0;                      ///< World::note_work, all together
  int64_t still_ms = kNever;               ///< since this count last grew, or a long wait ended
  CallId call;                             ///< that it waits in
  std::array<int32_t, kMaxPeers> peers{};  ///< some of those it waits for there, ranks in the world
  std::array<char, 32> group{};            ///< of that call, cut
};

/// Runs under the lock of Progress, but for note_work.
class Standing {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Standing(int rank) : rank_(rank) {}

  void enroll(const std::shared_ptr<Members>& members) { groups_[members->id] = members; }
  void note_work(int64_t amount);

  void begin_wait(const Operation& operation) { waits_.push_back({std::this_thread::get_id(), &operation}); }
  /// @param was_long  others may have waited for this one meanwhile; now it goes on.
  void end_wait(const Operation& operation, bool was_long);

  Answer answer(const CallId& call) const;
  /// Of this rank in an operation of its own that is not over.
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
  std::atomic<int64_t> worked_ = 0;
  std::atomic<Clock::time_point> last_move_{Clock::time_point::min()};
};

/// How the rank at the other end, `peer`, knows a call of `rank`.
inline CallId seen_from_peer(CallId call, int rank) {
  if (call.kind != Kind::kCollective) {
    call.kind = call.kind == Kind::kSend ? Kind::kReceive : Kind::kSend;
    call.partner = rank;
  }
  return call;
}

}  // namespace athanor::comm
