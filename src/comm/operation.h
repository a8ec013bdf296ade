#pragma once
// One collective on its way: phases that run one after the other, each a small machine that posts messages and is told
// when they are over. Everything here runs under the lock of Progress; only done() and failed() may be asked by anyone.

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/wire.h"

namespace athanor::comm {

struct Members;
class Sequence;
class Operation;

/// A phase is over when nothing it has posted is in flight any more.
class Phase {
 public:
  virtual ~Phase() = default;
  virtual void start(Operation& operation) = 0;
  /// A receive with this item is over. May post more.
  virtual void received(Operation& /*operation*/, int64_t /*item*/) {}
  virtual void sent(Operation& /*operation*/, int64_t /*item*/) {}
  /// Bytes it holds beside the tensors, once started.
  virtual int64_t scratch_bytes() const { return 0; }
};

class Operation {
 public:
  /// Made when its turn comes: an operation that waits for its own holds no lists of pieces and no room for terms.
  using MakePhase = std::function<std::unique_ptr<Phase>()>;
  using Phases = std::vector<MakePhase>;

  /// @param sequence  of `members`, in which it stands.
  /// @param held      what has to live until the operation is over: its tensors.
  Operation(std::shared_ptr<Members> members, Sequence& sequence, Phases phases, std::shared_ptr<void> held);

  // For phases. `peer` is an index of the group; an item is the phase's own name for a message.
  int index() const;
  int size() const;
  void send(int peer, const void* data, int64_t bytes, int64_t item);
  void receive(int peer, void* data, int64_t bytes, int64_t item);

  // For Progress and the sequence.
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
  void finished(Transfer& transfer, int64_t bytes);
  /// Ends one that has not begun.
  void fail(const std::string& error);
  /// Members with messages in flight.
  std::vector<int> peers() const;
  int64_t scratch_bytes() const { return phase_ ? phase_->scratch_bytes() : 0; }
  /// Nothing will be in flight any more, and what was received is in place.
  bool done() const { return done_.load(std::memory_order_acquire); }
  /// A peer did something else than expected. What is in flight may stay so for ever, and keeps its memory.
  bool failed() const { return failed_.load(std::memory_order_acquire); }
  /// What it did, once failed(). Members are written as "{3}", the caller knows their names.
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
  std::atomic<bool> done_ = false, failed_ = false;
};

}  // namespace athanor::comm
