#pragma once
// The messages between the ranks of a pipeline in a step: a hidden state after each forward, a gradient after each
// backward. The schedule determines the messages and their order, so they carry no headers.

#include <deque>
#include <functional>
#include <map>
#include <vector>

#include "comm/communicator.h"
#include "layout/schedule.h"
#include "ops/tensor.h"

namespace athanor {

/// A message that a stage waits for: the hidden states of a forward, or the gradient of a backward.
struct Message {
  Work work;
  int microbatch;
  int stage;  ///< the receiving stage

  auto operator<=>(const Message&) const = default;
};

/// Returns the messages between two ranks, in the order in which `from` produces them.
std::vector<Message> messages_between(const Schedule& schedule, int from, int to);

class PipelineMail {
 public:
  /// Returns an uninitialised tensor that a message will fill.
  using MakeRoom = std::function<Tensor(const Message&)>;

  /// This many receives from each peer are posted before they are asked for, so that messages travel while other
  /// microbatches are computed.
  static constexpr int kAhead = 2;

  /// @param ranks  those of the schedule; both must outlive this.
  PipelineMail(const Schedule& schedule, comm::Communicator& ranks, MakeRoom make_room);

  /// Sends the message, or keeps it if its stage is on this rank. Returns at once.
  void put(const Message& message, Tensor content);
  /// Waits for a message and returns its content. @throws CommError (comm/communicator.h).
  Tensor take(const Message& message);
  /// Waits until all messages given to put() have been sent.
  void finish();

 private:
  struct Expected {
    Message message;
    Tensor room;  ///< undefined before it is posted, and after it is taken
    comm::Pending pending;
  };
  struct Peer {
    int rank;
    std::vector<Expected> expected;
    size_t num_posted = 0, num_waiting = 0;  ///< posted, and posted but not taken
  };
  struct Sent {
    comm::Pending pending;
    Tensor content;
  };

  int rank_of(int stage) const { return stage % ranks_.size(); }
  void post(Peer& peer);
  void post_ahead(Peer& peer);

  comm::Communicator& ranks_;
  MakeRoom make_room_;
  std::map<Message, Tensor> kept_;                       ///< from this rank to itself
  std::vector<Peer> peers_;                              ///< ranks that send to this one
  std::map<Message, std::pair<size_t, size_t>> places_;  ///< for a message: the index of its peer, and its index there
  std::deque<Sent> sent_;
};

}  // namespace athanor
