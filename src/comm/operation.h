#pragma once
// One collective on its way: phases that run one after the other, each a small machine that posts messages and is told
// when they are over. Everything here runs under the lock of Progress; only done() may be asked by anyone.

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "comm/wire.h"

namespace athanor::comm {

/// The ranks of a group, and what they were really sent.
struct Members {
  Members(std::vector<int> ranks, int own_index, int64_t group_id);

  int64_t id;  ///< of the group, the same on all its members
  std::vector<int> wire_ranks;
  int index;  ///< of this process
  std::unique_ptr<std::atomic<int64_t>[]> bytes_sent;
  std::atomic<int64_t> num_started = 0;  ///< collectives, those between pairs not among them

  int size() const { return static_cast<int>(wire_ranks.size()); }
};

class Operation;

/// A phase is over when nothing it has posted is in flight any more.
class Phase {
 public:
  virtual ~Phase() = default;
  virtual void start(Operation& operation) = 0;
  /// A receive with this item is over. May post more.
  virtual void received(Operation& /*operation*/, int64_t /*item*/) {}
  virtual void sent(Operation& /*operation*/, int64_t /*item*/) {}
};

class Operation {
 public:
  using Phases = std::vector<std::unique_ptr<Phase>>;
  static constexpr int64_t kBetweenTwo = -1;

  /// @param number  of the collective in its group, or kBetweenTwo.
  /// @param held    what has to live until the operation is over: its tensors.
  Operation(std::shared_ptr<Members> members, int64_t number, int tag, Phases phases, std::shared_ptr<void> held);

  // For phases. `peer` is an index of the group; an item is the phase's own name for a message.
  int index() const { return members_->index; }
  int size() const { return members_->size(); }
  const Members& members() const { return *members_; }
  int64_t number() const { return number_; }
  void send(int peer, const void* data, int64_t bytes, int64_t item);
  void receive(int peer, void* data, int64_t bytes, int64_t item);

  // For Progress.
  struct Transfer {
    Operation* operation;
    int peer;
    bool sending;
    int64_t bytes, item;
    bool in_flight;
  };
  void begin(Wire& wire);
  void finished(Transfer& transfer, int64_t bytes);
  /// Members with messages in flight.
  std::vector<int> peers() const;
  /// Nothing will be in flight any more, and what was received is in place.
  bool done() const { return done_.load(std::memory_order_acquire); }
  /// A peer did something else than expected. What is in flight may stay so for ever, and keeps its memory.
  bool failed() const { return failed_.load(std::memory_order_acquire); }
  /// What it did, once failed(). Members are written as "{3}", the caller knows their names.
  const std::string& error() const { return error_; }

 private:
  void post(bool sending, int peer, void* data, int64_t bytes, int64_t item);
  void go_on();

  std::shared_ptr<Members> members_;
  int64_t number_;
  int tag_;
  Phases phases_;
  size_t phase_ = 0;
  std::shared_ptr<void> held_;
  Wire* wire_ = nullptr;
  std::deque<Transfer> transfers_;
  std::vector<Transfer*> free_;
  int64_t in_flight_ = 0;
  std::string error_;
  std::atomic<bool> done_ = false, failed_ = false;
};

}  // namespace athanor::comm
