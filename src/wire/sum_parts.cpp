// The reduce-scatter.

#include <algorithm>
#include <deque>

#include "wire/phases.h"

namespace athanor::comm {

namespace {

// Pieces are small enough for the cache to hold all terms of one, and large enough for the network. Their slots stay
// within kBuffer up to 2,048 ranks; beyond that, within 16 KiB for each rank (192 MiB for 12,288), and always within
// the size of the tensor.
constexpr int64_t kPieceBytes = 512 << 10, kSmallestPiece = 4 << 10, kBuffer = 32 << 20;
constexpr int64_t kSlots = 4;        // pieces that may arrive while one is added
constexpr int kPiecesInFlight = 32;  // messages in flight in each direction

class SumParts : public Phase {
 public:
  SumParts(Element element, Combine combine, Scale scale, const char* in, std::vector<int64_t> begins, char* out)
      : element_(element), combine_(combine), scale_(scale), in_(in), begins_(std::move(begins)), out_(out) {}

  void start(Operation& operation) override {
    me_ = operation.index();
    size_ = operation.size();
    const int64_t others = std::max(size_ - 1, 1), width = element_bytes(element_);
    int64_t longest = 1;
    for (int i = 0; i < size_; ++i) longest = std::max(longest, count_of(i));
    // The piece size is the same on every rank: a piece of one part is a message, and its position in the order follows
    // from the size.
    piece_ = std::clamp(kBuffer / (kSlots * others), kSmallestPiece, kPieceBytes) / width;
    num_pieces_ = (longest + piece_ - 1) / piece_;
    const int64_t slot = std::min(piece_, count_of(me_));
    slot_bytes_ = slot * width;
    buffer_.resize(static_cast<size_t>(std::min(kSlots, pieces_of(me_)) * others * slot_bytes_));
    awaited_.assign(static_cast<size_t>(kSlots), others);
    for (int i = 0; i < kPiecesInFlight; ++i) sent(operation, 0);
    post_receives(operation);
  }

  int64_t scratch_bytes() const override { return static_cast<int64_t>(buffer_.size()); }

  void sent(Operation& operation, int64_t) override {
    while (send_piece_ < num_pieces_) {
      const int to = (me_ + send_distance_) % size_;
      const int64_t piece = send_piece_;
      if (++send_distance_ >= size_) {
        send_distance_ = 1;
        ++send_piece_;
      }
      if (to == me_ || piece >= pieces_of(to)) continue;
      const int64_t begin = begins_[static_cast<size_t>(to)] + piece * piece_;
      return operation.send(to, in_ + begin * element_bytes(element_), length(to, piece) * element_bytes(element_), 0);
    }
  }

  void received(Operation& operation, int64_t piece) override {
    --receiving_;
    int64_t& awaited = awaited_[static_cast<size_t>(piece % kSlots)];
    if (--awaited == 0) {
      awaited = size_ - 1;
      add_up(piece);
      complete_.push_back(piece);
      // Slots are given back in the order in which they were handed out.
      std::sort(complete_.begin(), complete_.end());
      while (!complete_.empty() && complete_.front() == num_summed_) {
        complete_.pop_front();
        ++num_summed_;
      }
    }
    post_receives(operation);
  }

 private:
  int64_t count_of(int member) const {
    return begins_[static_cast<size_t>(member) + 1] - begins_[static_cast<size_t>(member)];
  }
  int64_t pieces_of(int member) const { return (count_of(member) + piece_ - 1) / piece_; }
  int64_t length(int member, int64_t piece) const { return std::min(piece_, count_of(member) - piece * piece_); }
  char* slot(int64_t piece, int from) {
    const int64_t other = from < me_ ? from : from - 1;
    return buffer_.data() + ((piece % kSlots) * (size_ - 1) + other) * slot_bytes_;
  }

  void post_receives(Operation& operation) {
    while (receiving_ < kPiecesInFlight && receive_piece_ < pieces_of(me_) && receive_piece_ < num_summed_ + kSlots &&
           size_ > 1) {
      const int from = (me_ - receive_distance_ + size_) % size_;
      operation.receive(from, slot(receive_piece_, from), length(me_, receive_piece_) * element_bytes(element_),
                        receive_piece_);
      ++receiving_;
      if (++receive_distance_ >= size_) {
        receive_distance_ = 1;
        ++receive_piece_;
      }
    }
  }

  void add_up(int64_t piece) {
    const int64_t width = element_bytes(element_), begin = piece * piece_;
    terms_.resize(static_cast<size_t>(size_));
    for (int i = 0; i < size_; ++i) {
      terms_[static_cast<size_t>(i)] =
          i == me_ ? in_ + (begins_[static_cast<size_t>(me_)] + begin) * width : slot(piece, i);
    }
    tree_sum(element_, combine_, scale_, terms_.data(), size_, length(me_, piece), out_ + begin * width);
  }

  Element element_;
  Combine combine_;
  Scale scale_;
  const char* in_;
  std::vector<int64_t> begins_;
  char* out_;
  int me_ = 0, size_ = 1;
  int64_t piece_ = 1, num_pieces_ = 0, slot_bytes_ = 0;
  int send_distance_ = 1, receive_distance_ = 1, receiving_ = 0;
  int64_t send_piece_ = 0, receive_piece_ = 0, num_summed_ = 0;
  std::vector<char> buffer_;
  std::vector<int64_t> awaited_;
  std::deque<int64_t> complete_;
  std::vector<const void*> terms_;
};

}  // namespace

std::unique_ptr<Phase> sum_parts(Element element, Combine combine, Scale scale, const char* in,
                                 std::vector<int64_t> begins, char* out) {
  return std::make_unique<SumParts>(element, combine, scale, in, std::move(begins), out);
}

}  // namespace athanor::comm
