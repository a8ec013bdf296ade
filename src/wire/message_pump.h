#pragma once
// Moves messages: in one thread of the process for all groups, or in a caller that waits for an operation.
//
// MPI makes progress only while it is called. The thread sleeps while nothing is in flight, and polls every 20–200 µs
// while the caller computes (ranks may have one core each, or less). While a caller waits, the caller does the thread's
// work, without a switch between two threads for each message. Even when idle the thread polls now and then for another
// rank's roll call.

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/missing_ranks.h"
#include "wire/rank_state.h"
#include "wire/roll_call.h"
#include "wire/sequence.h"
#include "wire/wire.h"

namespace athanor::comm {

class MessagePump {
 public:
  using Clock = std::chrono::steady_clock;

  explicit MessagePump(std::unique_ptr<Wire> wire);
  /// Stops the thread. Operations in flight are abandoned: the network may still write to their memory, so an
  /// operation and its sequence keep holding each other.
  ~MessagePump();
  MessagePump(const MessagePump&) = delete;
  MessagePump& operator=(const MessagePump&) = delete;

  /// Starts an operation of `members`: a collective (peer −1), or a message to or from the member with index `peer`.
  /// Its first messages are posted before this returns, unless other operations have to be complete first (sequence.h).
  /// @param phases, held  see Operation.
  /// @throws CommError if the network fails.
  std::shared_ptr<Operation> start(const std::shared_ptr<Members>& members, Kind kind, int peer,
                                   Operation::Phases phases, std::shared_ptr<void> held);
  /// Waits until the operation is done or has failed, and then returns true. Returns false if the timeout passes first:
  /// the operation then continues, and `late` holds the ranks that have not come, if any are known. The wait is longer
  /// than `timeout` as long as all late ranks have noted work (World::note_work) within that time, which is checked
  /// once in each such time.
  /// @throws CommError if the network fails.
  bool wait(const Operation& operation, std::chrono::milliseconds timeout, std::vector<Late>& late);
  /// To be called for each group before its first collective.
  void enroll(const std::shared_ptr<Members>& members);
  /// Does what World::note_work describes.
  void note_work(int64_t amount) { state_.note_work(amount); }
  /// Sets the hosts by rank in the world, for names like "rank 3 (host b)".
  void name_hosts(const std::vector<std::string>& hosts) { hosts_ = hosts; }
  std::string name_of(int rank) const;  ///< `rank` is one of the world
  std::string host_of(int rank) const;  ///< "" if it is not known
  /// Returns true if nothing is in flight any more and every wait ended in time. Operations that no caller has waited
  /// for get up to `limit` to complete.
  bool settle(std::chrono::milliseconds limit);

  Wire& wire() { return *wire_; }
  /// Stops the thread and ends the job. Collective over the world (Wire::close). To be called after settle() only.
  void close();

 private:
  bool advance();
  void note_failure(const std::exception& error);
  void end(Operation& operation);
  bool wait_for(const Operation& operation, std::chrono::milliseconds limit);
  std::vector<Late> look(const Operation& operation);
  std::optional<std::vector<Late>> ask_first_member(const Operation& operation);
  /// Moves messages until `over` returns true, the operation is done or the wire has failed. @return what `over`
  /// returned last.
  bool move_until(const Operation& operation, const std::function<bool()>& over);
  void run();
  void stop();

  std::unique_ptr<Wire> wire_;
  std::mutex mutex_;  ///< guards the wire and every operation
  std::condition_variable wake_;
  RankState state_;
  RollCall roll_call_;
  int64_t num_active_ = 0;  ///< started and not complete; their sequences hold them
  std::vector<Wire::Finished> finished_;
  int num_waiting_ = 0;
  bool stopping_ = false, failed_ = false;
  std::string failure_;             ///< failure of the wire itself
  std::vector<RankOnHost> lost_;    ///< the rank that the wire has lost, if it knows it
  std::vector<std::string> hosts_;  ///< host of each rank of the world
  std::thread thread_;
};

}  // namespace athanor::comm
