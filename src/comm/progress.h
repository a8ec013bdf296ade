#pragma once
// Who moves messages on: one thread of the process for all groups, or whoever waits for one of them.
//
// MPI only moves while somebody calls it. The thread sleeps while nothing is under way, looks every 20–200 µs while the
// caller computes (ranks may have one core each, or less), and leaves the work to a caller that waits: it then does
// what the thread would do, without a switch between two threads for each message. Even idle it looks now and then
// whether another rank calls the roll.

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "comm/roll_call.h"
#include "comm/sequence.h"
#include "comm/standing.h"
#include "comm/wire.h"

namespace athanor::comm {

class Progress {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Progress(std::unique_ptr<Wire> wire);
  /// Stops the thread. Operations under way are abandoned: the network may still write to them, so that each goes on
  /// being held by its sequence, and that by it.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Starts an operation of `members`: a collective (peer −1), or a message to or from that member. Its first messages
  /// are posted before this answers, unless others have to be over first (sequence.h).
  std::shared_ptr<Operation> start(const std::shared_ptr<Members>& members, Kind kind, int peer,
                                   Operation::Phases phases, std::shared_ptr<void> held);
  /// Until it is done or has failed. False where the time is over before: then it goes on, and `late` (or nobody) is
  /// who has not come. Longer than `timeout` as long as all who are late have noted work within that time, looked at
  /// once in such a time.
  bool wait(const Operation& operation, std::chrono::milliseconds timeout, std::vector<Late>& late);
  /// Of each group, before its first collective.
  void enroll(const std::shared_ptr<Members>& members);
  /// World::note_work.
  void note_work(int64_t amount) { standing_.note_work(amount); }
  /// "rank 3 (host b)", by their rank in the world.
  void name_hosts(const std::vector<std::string>& hosts) { hosts_ = hosts; }
  std::string name_of(int rank) const;
  /// Nothing is under way any more, and every wait was over in time. What nobody has waited for gets this long to end.
  bool settle(std::chrono::milliseconds limit);

  Wire& wire() { return *wire_; }
  /// Stops the thread and ends the job in agreement with all others. Only after settle().
  void close();

 private:
  bool advance();
  void end(Operation& operation);
  bool wait_for(const Operation& operation, std::chrono::milliseconds limit);
  std::vector<Late> look(const Operation& operation);
  void run();
  void stop();

  std::unique_ptr<Wire> wire_;
  std::mutex mutex_;  ///< of the wire and of every operation
  std::condition_variable wake_;
  Standing standing_;
  RollCall roll_call_;
  int64_t num_active_ = 0;  ///< started and not over; their sequences hold them
  std::vector<Wire::Finished> finished_;
  int num_waiting_ = 0;
  bool stopping_ = false, failed_ = false;
  std::string failure_;             ///< of the wire itself
  std::vector<std::string> hosts_;  ///< of each rank of the world
  std::thread thread_;
};

}  // namespace athanor::comm
