#pragma once
// One operation in flight. Its phases run one after the other; each is a small state machine that posts messages and
// is told when they are complete. Everything here runs under the lock of MessagePump, except done() and failed(), which
// any thread may call.

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "wire/wire.h"

namespace athanor::comm {

struct Members;
class Sequence;
class Operation;

/// A phase is complete when none of the messages that it has posted is in flight any more.
class Phase {
 public:
  virtual ~Phase() = default;
  virtual void start(Operation& operation) = 0;
  /// These are called when the receive, or the send, with this item is complete. They may post more messages.
  virtual void received(Operation& /*operation*/, int64_t /*item*/) {}
  virtual void sent(Operation& /*operation*/, int64_t /*item*/) {}
  /// Bytes that the phase holds in addition to the tensors, once started.
  virtual int64_t scratch_bytes() const { return 0; }
};

class Operation {
 public:
  /// Makes a phase when its turn comes, so that an operation waiting for its turn holds no lists of pieces and no room
  /// for terms.
  using MakePhase = std::function<std::unique_ptr<Phase>()>;
  using Phases = std::vector<MakePhase>;

  /// @param sequence  the sequence of `members` that it belongs to.
  /// @param held      what must live until the operation is complete: its tensors.
  Operation(std::shared_ptr<Members> members, Sequence& sequence, Phases phases, std::shared_ptr<void> held);

  // For phases. `peer` is an index in the group; an item is the phase's identifier for a message.
  int index() const;
  int size() const;
  void send(int peer, const void* data, int64_t bytes, int64_t item);
  void receive(int peer, void* data, int64_t bytes, int64_t item);

  // For MessagePump and the sequence.
  struct Transfer {
    Operation* operation;
    int peer;
    bool sending;
    int64_t bytes, item;
    bool in_flight;
  };
  const std::shared_ptr<Members>& members() const { return members_; }
  Sequence& sequence() const { return sequence_; }
  int64_t number() const { return number_; }  ///< in the sequence
  void set_number(int64_t number) { number_ = number; }
  void begin(Wire& wire);
  /// To be called when a transfer is complete, with Wire::Finished::bytes.
  void finished(Transfer& transfer, int64_t bytes);
  /// Fails an operation that has not begun.
  void fail(const std::string& error);
  /// Returns the indices of the members with messages in flight.
  std::vector<int> peers() const;
  int64_t scratch_bytes() const { return phase_ ? phase_->scratch_bytes() : 0; }
  /// True if nothing will be in flight any more and everything received is in place.
  bool done() const { return done_.load(std::memory_order_acquire); }
  /// When it was done, on the clock of span_clock_ns() (base/span_log.h); 0 before that.
  int64_t completed_ns() const { return completed_ns_.load(std::memory_order_relaxed); }
  /// True if a peer did something other than expected. Messages in flight may stay so for ever, and keep their memory.
  bool failed() const { return failed_.load(std::memory_order_acquire); }
  /// Returns what the peer did, once failed(). Members are written as "{3}"; the caller knows their names.
  const std::string& error() const { return error_; }

 private:
  void post(bool sending, int peer, void* data, int64_t bytes, int64_t item);
  void start_phase();
  void go_on();

  std::shared_ptr<Members> members_;
  Sequence& sequence_;
  int64_t number_ = -1;
  Phases phases_;
  size_t phase_index_ = 0;
  std::unique_ptr<Phase> phase_;
  std::shared_ptr<void> held_;
  Wire* wire_ = nullptr;
  std::deque<Transfer> transfers_;
  std::vector<Transfer*> free_;
  int64_t in_flight_ = 0;
  std::string error_;
  std::atomic<int64_t> completed_ns_ = 0;
  std::atomic<bool> done_ = false, failed_ = false;
};

}  // namespace athanor::comm
