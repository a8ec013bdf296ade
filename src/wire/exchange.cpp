// Sends and receives that do not depend on each other, and the barrier.

#include <algorithm>

#include "wire/phases.h"

namespace athanor::comm {

namespace {

constexpr int64_t kMessage = 4 << 20;  // a poll that moves a whole message takes under a millisecond
constexpr int kMessagesInFlight = 16;  // messages in flight in each direction

/// The messages of a list of pieces, one after the other.
class Messages {
 public:
  explicit Messages(std::vector<Piece> pieces) : pieces_(std::move(pieces)) { skip_empty(); }
  bool over() const { return piece_ == pieces_.size(); }
  Piece next() {
    const Piece& piece = pieces_[piece_];
    const Piece message{piece.peer, piece.data + offset_, std::min(kMessage, piece.bytes - offset_)};
    offset_ += message.bytes;
    skip_empty();
    return message;
  }

 private:
  void skip_empty() {
    while (piece_ < pieces_.size() && offset_ == pieces_[piece_].bytes) {
      ++piece_;
      offset_ = 0;
    }
  }

  std::vector<Piece> pieces_;
  size_t piece_ = 0;
  int64_t offset_ = 0;
};

class Exchange : public Phase {
 public:
  Exchange(std::vector<Piece> sends, std::vector<Piece> receives, std::function<void()> local)
      : sends_(std::move(sends)), receives_(std::move(receives)), local_(std::move(local)) {}

  void start(Operation& operation) override {
    for (int i = 0; i < kMessagesInFlight; ++i) {
      received(operation, 0);
      sent(operation, 0);
    }
    if (local_) local_();
  }

  void received(Operation& operation, int64_t) override {
    if (receives_.over()) return;
    const Piece message = receives_.next();
    operation.receive(message.peer, message.data, message.bytes, 0);
  }

  void sent(Operation& operation, int64_t) override {
    if (sends_.over()) return;
    const Piece message = sends_.next();
    operation.send(message.peer, message.data, message.bytes, 0);
  }

 private:
  Messages sends_, receives_;
  std::function<void()> local_;
};

/// A dissemination barrier: in round k each rank hears from the rank 2^k before it, so after ⌈log₂ n⌉ rounds it has
/// heard of all.
class Barrier : public Phase {
 public:
  void start(Operation& operation) override { round(operation); }
  void received(Operation& operation, int64_t) override {
    step_ *= 2;
    round(operation);
  }

 private:
  void round(Operation& operation) {
    const int n = operation.size();
    if (step_ >= n) return;
    operation.receive((operation.index() - step_ % n + n) % n, &heard_, 1, 0);
    operation.send((operation.index() + step_) % n, &said_, 1, 0);
  }

  int step_ = 1;
  char said_ = 1, heard_ = 0;
};

}  // namespace

std::unique_ptr<Phase> exchange(std::vector<Piece> sends, std::vector<Piece> receives, std::function<void()> local) {
  return std::make_unique<Exchange>(std::move(sends), std::move(receives), std::move(local));
}

std::unique_ptr<Phase> dissemination_barrier() { return std::make_unique<Barrier>(); }

}  // namespace athanor::comm
