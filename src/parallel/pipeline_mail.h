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

namespace athanor::inline parallel {

/// A message that a stage waits for: the input of a forward (hidden states) or of a backward (their gradient).
struct Message {
  Work work;  ///< what the receiver will compute from it
  int microbatch;
  int stage;  ///< the receiving stage, in the whole pipeline from 0

  auto operator<=>(const Message&) const = default;
};

/// Returns the messages from one pipeline rank to another (or to itself), in the order in which `from` produces them.
std::vector<Message> messages_between(const Schedule& schedule, int from, int to);

/// One rank's messages in one pass through the schedule. Collective: all ranks of the pipeline make one.
class PipelineMail {
 public:
  /// Returns an uninitialised tensor that a message will fill.
  using MakeRoom = std::function<Tensor(const Message&)>;

  /// This many receives from each peer are posted before take() asks for them, so that messages travel while other
  /// microbatches are computed.
  static constexpr int kAhead = 2;

  /// Posts the first receives.
  /// @param ranks  as many as the schedule has; must outlive this.
  PipelineMail(const Schedule& schedule, comm::Communicator& ranks, MakeRoom make_room);

  /// Starts to send the message, or keeps it if its stage is on this rank. Does not wait. @throws CommError if an
  /// earlier message could not be sent.
  void put(const Message& message, Tensor content);
  /// Waits for a message of the schedule and returns its content; once for each. A message of this rank to itself must
  /// have been put. @throws CommError.
  Tensor take(const Message& message);
  /// Waits until all messages given to put() have been sent. @throws CommError.
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

}  // namespace athanor::inline parallel
