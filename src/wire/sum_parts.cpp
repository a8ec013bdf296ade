// The flat reduce-scatter: every member receives its part from all others.

#include <algorithm>
#include <numeric>

#include "wire/phases.h"
#include "wire/piece_sums.h"

namespace athanor::comm {

namespace {

class FlatSums : public PieceSums {
 public:
  FlatSums(SumSpec spec, int index)
      : spec_(std::move(spec)), width_(element_bytes(spec_.element)), terms_(spec_.begins.size() - 1) {
    me = index;
    members.resize(terms_.size());
    std::iota(members.begin(), members.end(), 0);
    piece_ = piece_elements(std::ssize(members) - 1, width_);
    for (int m = 0; m < std::ssize(members); ++m) num_pieces = std::max(num_pieces, pieces_of(m));
  }

  Bytes outgoing(int to, int64_t piece) const override {
    const int64_t begin = spec_.begins[static_cast<size_t>(to)] + piece * piece_;
    return {spec_.in + begin * width_, length(to, piece) * width_};
  }
  int64_t incoming(int, int64_t piece) const override { return length(me, piece) * width_; }
  int64_t most_incoming(int) const override { return length(me, 0) * width_; }

  void add(int64_t piece, const std::vector<const char*>& received) override {
    if (length(me, piece) == 0) return;
    const int64_t begin = piece * piece_ * width_;
    std::copy(received.begin(), received.end(), terms_.begin());
    terms_[static_cast<size_t>(me)] = spec_.in + spec_.begins[static_cast<size_t>(me)] * width_ + begin;
    tree_sum(spec_.element, spec_.combine, spec_.scale, terms_.data(), static_cast<int>(terms_.size()),
             length(me, piece), spec_.out + begin);
  }

 private:
  int64_t count_of(int member) const {
    return spec_.begins[static_cast<size_t>(member) + 1] - spec_.begins[static_cast<size_t>(member)];
  }
  int64_t pieces_of(int member) const { return (count_of(member) + piece_ - 1) / piece_; }
  int64_t length(int member, int64_t piece) const {
    return std::clamp<int64_t>(count_of(member) - piece * piece_, 0, piece_);
  }

  const SumSpec spec_;
  const int64_t width_;
  std::vector<const void*> terms_;
  int64_t piece_ = 1;
};

}  // namespace

std::unique_ptr<Phase> sum_parts(SumSpec spec, int me) {
  return run_piece_sums(std::make_unique<FlatSums>(std::move(spec), me));
}

}  // namespace athanor::comm
