#pragma once
// What the ranks of a pipeline send one another in a step: a hidden state after each forward, a gradient after each
// backward. Which, and in which order, follows from the sender's actions; so nothing is said of it on the way.

#include <deque>
#include <functional>
#include <map>
#include <vector>

#include "arch/schedule.h"
#include "comm/communicator.h"
#include "ops/tensor.h"

namespace athanor {

/// What a stage waits for: the hidden states of a forward, or the gradient of a backward.
struct Message {
  Work work;
  int microbatch;
  int stage;  ///< that it goes to

  auto operator<=>(const Message&) const = default;
};

/// Between two ranks, in the order in which `from` has them ready.
std::vector<Message> messages_between(const Schedule& schedule, int from, int to);

class PipelineMail {
 public:
  /// An uninitialised tensor for a message: a peer fills it.
  using MakeRoom = std::function<Tensor(const Message&)>;

  /// Room for so many messages of each peer is given before they are asked for, so that they travel while other
  /// microbatches are computed.
  static constexpr int kAhead = 2;

  /// @param ranks  the schedule's; it and the schedule outlive this.
  PipelineMail(const Schedule& schedule, comm::Communicator& ranks, MakeRoom make_room);

  /// Sends it, or keeps it where the stage is on this rank. Answers at once.
  void put(const Message& message, Tensor content);
  /// Waits for it. @throws CommError (comm/communicator.h).
  Tensor take(const Message& message);
  /// Waits until all that was put has gone.
  void finish();

 private:
  struct Expected {
    Message message;
    Tensor room;  ///< undefined before it is posted, and once taken
    comm::Pending pending;
  };
  struct Peer {
    int rank;
    std::vector<Expected> expected;
    size_t num_posted = 0, num_waiting = 0;  ///< posted, and of these not taken
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
  std::vector<Peer> peers_;                              ///< that send here
  std::map<Message, std::pair<size_t, size_t>> places_;  ///< of a message: its peer, and its number there
  std::deque<Sent> sent_;
};

}  // namespace athanor
