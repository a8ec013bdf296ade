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
#include <thread>
#include <vector>

#include "comm/operation.h"
#include "comm/roll_call.h"
#include "comm/wire.h"

namespace athanor::comm {

class Progress {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Progress(std::unique_ptr<Wire> wire);
  /// Stops the thread. Operations under way are abandoned, their memory is left alone.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Posts its first messages before it answers.
  void start(std::shared_ptr<Operation> operation);
  /// Until it is done or has failed. False where the time is over before; it goes on then.
  bool wait(const Operation& operation, std::chrono::milliseconds timeout);
  struct Missing {
    int member;
    bool answers;  ///< its process is alive, but has not started this collective
  };
  /// Who has not come to it: asks, for a second or two. Between two ranks it is the other one.
  std::vector<Missing> missing(const Operation& operation);
  /// Of each group, before its first collective.
  void enroll(std::shared_ptr<const Members> members);
  /// Nothing is under way any more, and every wait was over in time. What nobody has waited for gets this long to end.
  bool settle(std::chrono::milliseconds limit);

  Wire& wire() { return *wire_; }
  /// Stops the thread and ends the job in agreement with all others. Only after settle().
  void close();

 private:
  bool advance();
  void run();
  void stop();

  std::unique_ptr<Wire> wire_;
  std::mutex mutex_;  ///< of the wire and of every operation
  std::condition_variable wake_;
  RollCall roll_call_;
  std::vector<std::shared_ptr<Operation>> active_;
  std::vector<Wire::Finished> finished_;
  int num_waiting_ = 0;
  bool stopping_ = false, failed_ = false;
  std::string failure_;  ///< of the wire itself
  std::thread thread_;
};

}  // namespace athanor::comm
