#include "wire/piece_sums.h"

#include <algorithm>
#include <array>
#include <deque>

#include "base/error.h"

namespace athanor::comm {

namespace {

constexpr int kPiecesInFlight = 32;  // messages in flight in each direction

class PiecePump : public Phase {
 public:
  explicit PiecePump(std::unique_ptr<PieceSums> sums) : sums_(std::move(sums)) {}

  void start(Operation& operation) override {
    size_ = static_cast<int>(sums_->members.size());
    ATHANOR_ASSERT(sums_->members[static_cast<size_t>(sums_->me)] == operation.index());
    for (int from = 0; from < size_; ++from) {
      offsets_.push_back(slot_bytes_);
      if (from != sums_->me) slot_bytes_ += sums_->most_incoming(from);
    }
    received_.resize(static_cast<size_t>(size_));
    buffer_.resize(static_cast<size_t>(std::min(kPieceSlots, sums_->num_pieces) * slot_bytes_));
    for (int i = 0; i < kPiecesInFlight; ++i) sent(operation, 0);
    post_receives(operation);
  }

  int64_t scratch_bytes() const override { return static_cast<int64_t>(buffer_.size()) + sums_->held_bytes(); }

  void sent(Operation& operation, int64_t) override {
    while (size_ > 1 && send_piece_ < sums_->num_pieces) {
      const int to = (sums_->me + send_distance_) % size_;
      const auto [data, bytes] = sums_->outgoing(to, send_piece_);
      if (++send_distance_ == size_) {
        send_distance_ = 1;
        ++send_piece_;
      }
      if (bytes > 0) return operation.send(sums_->members[static_cast<size_t>(to)], data, bytes, 0);
    }
  }

  void received(Operation& operation, int64_t piece) override {
    --receiving_;
    if (--awaited(piece) == 0 && receive_piece_ > piece) complete(piece);
    post_receives(operation);
  }

 private:
  int64_t& awaited(int64_t piece) { return awaited_[static_cast<size_t>(piece % kPieceSlots)]; }
  char* slot(int64_t piece, int from) {
    return buffer_.data() + (piece % kPieceSlots) * slot_bytes_ + offsets_[static_cast<size_t>(from)];
  }

  void post_receives(Operation& operation) {
    while (receiving_ < kPiecesInFlight && receive_piece_ < sums_->num_pieces &&
           receive_piece_ < num_summed_ + kPieceSlots) {
      const int64_t piece = receive_piece_;
      if (receive_distance_ == 1) awaited(piece) = 0;
      if (receive_distance_ < size_) {
        const int from = (sums_->me - receive_distance_ + size_) % size_;
        const int64_t bytes = sums_->incoming(from, piece);
        if (bytes > 0) {
          operation.receive(sums_->members[static_cast<size_t>(from)], slot(piece, from), bytes, piece);
          ++awaited(piece);
          ++receiving_;
        }
        ++receive_distance_;
      }
      if (receive_distance_ < size_) continue;
      receive_distance_ = 1;
      ++receive_piece_;
      if (awaited(piece) == 0) complete(piece);  // nothing comes, or all of it has come
    }
  }

  void complete(int64_t piece) {
    for (int from = 0; from < size_; ++from)
      received_[static_cast<size_t>(from)] = from == sums_->me ? nullptr : slot(piece, from);
    sums_->add(piece, received_);
    complete_.push_back(piece);
    // Slots are given back in the order in which they were handed out.
    std::sort(complete_.begin(), complete_.end());
    while (!complete_.empty() && complete_.front() == num_summed_) {
      complete_.pop_front();
      ++num_summed_;
    }
  }

  std::unique_ptr<PieceSums> sums_;
  int size_ = 1;
  int64_t slot_bytes_ = 0;
  std::vector<int64_t> offsets_;  // in a slot, by sender
  std::vector<const char*> received_;
  std::vector<char> buffer_;
  int send_distance_ = 1, receive_distance_ = 1, receiving_ = 0;
  int64_t send_piece_ = 0, receive_piece_ = 0, num_summed_ = 0;
  std::array<int64_t, kPieceSlots> awaited_{};
  std::deque<int64_t> complete_;
};

}  // namespace

int64_t piece_elements(int64_t terms, int64_t width) {
  return std::clamp(kPieceBuffer / (kPieceSlots * std::max<int64_t>(terms, 1)), kSmallestPiece, kPieceBytes) / width;
}

std::unique_ptr<Phase> run_piece_sums(std::unique_ptr<PieceSums> sums) {
  return std::make_unique<PiecePump>(std::move(sums));
}

}  // namespace athanor::comm
