// Every rank gets all tokens of all ranks, in chunks that are padded to the most tokens that a rank has in them.

#include <algorithm>

#include "moe/dispatch_choices.h"

namespace athanor::moe {
namespace {

class AllGather : public Exchange {
 public:
  explicit AllGather(const DispatchInput& input)
      : group_(input.group), chunks_(input.options.chunks), tokens_(input.num_tokens()), k_(input.k()),
        sends_(static_cast<size_t>(chunks_)), returns_(static_cast<size_t>(chunks_)) {
    all_tokens_.assign(at(group_.size()), tokens_);
    if (!input.known.equal) gather_counts();
    plan();
    begin_choices(input);
  }

  int64_t num_chunks() const override { return chunks_; }
  int64_t num_received() const override { return group_.size() * padded_.back(); }

  const Received& received() override {
    if (received_.weights_NK.defined()) return received_;
    choices_coming_.wait();
    const int64_t n = num_received();
    received_.weights_NK = at::empty({n, k_}, at::kFloat);
    received_.ids_NK = at::full({n, k_}, -1, at::kLong);  // padding chooses no expert
    auto* weights = received_.weights_NK.data_ptr<float>();
    auto* ids = received_.ids_NK.data_ptr<int64_t>();
    const ChoiceReader reader{all_choices_.const_data_ptr<uint8_t>(), k_};
    for (int64_t c = 0; c <= chunks_; ++c) received_.chunk_begin.push_back(group_.size() * padded_[at(c)]);
    for (int64_t s = 0; s < group_.size(); ++s) {
      for (int64_t c = 0; c < chunks_; ++c) {
        const int64_t begin = arrival(s, c), count = own_count(s, c);
        for (int64_t i = 0; i < count; ++i) {
          const int64_t to = (begin + i) * k_;
          reader.read(s * padded_.back() + padded_[at(c)] + i, weights + to, ids + to);
        }
        if (count > 0) received_.canonical.push_back({begin, count});
      }
    }
    all_choices_.reset();
    return received_;
  }

  void begin_send(int64_t chunk, const Tensor& x_TD, const Tensor& x_ND) override {
    const Tensor own = x_ND.narrow(0, arrival(group_.rank(), chunk), padding(chunk));
    const int64_t count = own_count(group_.rank(), chunk);
    own.narrow(0, 0, count).copy_(x_TD.narrow(0, own_begin(chunk), count));
    own.narrow(0, count, padding(chunk) - count).zero_();  // no rank reads it, but uninitialised memory would be sent
    sends_[at(chunk)] = group_.all_gather(rows_of(x_ND, chunk), own);
  }
  void finish_send(int64_t chunk) override { sends_[at(chunk)].wait(); }

  void begin_return(int64_t chunk, const Tensor& partial_nD) override {
    Return& r = returns_[at(chunk)];
    r.partial = partial_nD;
    r.sum = at::empty({padding(chunk), partial_nD.size(1)}, partial_nD.options());
    r.coming = group_.reduce_scatter(r.sum, r.partial);
  }
  void finish_return(int64_t chunk, const Tensor& sum_TD) override {
    Return& r = returns_[at(chunk)];
    r.coming.wait();
    const int64_t count = own_count(group_.rank(), chunk);
    sum_TD.narrow(0, own_begin(chunk), count).copy_(r.sum.narrow(0, 0, count));
    r = {};
  }

  void begin_return_weights(const Tensor& dweights_NK) override {
    weights_.partial = at::empty({group_.size(), padded_.back(), k_}, at::kFloat);
    for (int64_t s = 0; s < group_.size(); ++s) {
      for (int64_t c = 0; c < chunks_; ++c) {
        weights_.partial[s]
            .narrow(0, padded_[at(c)], padding(c))
            .copy_(dweights_NK.narrow(0, arrival(s, c), padding(c)));
      }
    }
    weights_.sum = at::empty({padded_.back(), k_}, at::kFloat);
    weights_.coming = group_.reduce_scatter(weights_.sum, weights_.partial);
  }
  Tensor finish_return_weights() override {
    weights_.coming.wait();
    const Tensor dweights_TK = at::empty({tokens_, k_}, at::kFloat);
    for (int64_t c = 0; c < chunks_; ++c) {
      const int64_t count = own_count(group_.rank(), c);
      dweights_TK.narrow(0, own_begin(c), count).copy_(weights_.sum.narrow(0, padded_[at(c)], count));
    }
    weights_ = {};
    return dweights_TK;
  }

 private:
  struct Return {
    Tensor partial, sum;
    comm::Pending coming;
  };

  static size_t at(int64_t i) { return static_cast<size_t>(i); }
  int64_t own_begin(int64_t c) const { return chunk_begin(tokens_, chunks_, c); }
  int64_t own_count(int64_t source, int64_t c) const {
    const int64_t tokens = all_tokens_[at(source)];
    return chunk_begin(tokens, chunks_, c + 1) - chunk_begin(tokens, chunks_, c);
  }
  int64_t padding(int64_t c) const { return padded_[at(c + 1)] - padded_[at(c)]; }  // tokens of each rank in chunk c
  int64_t arrival(int64_t source, int64_t c) const { return group_.size() * padded_[at(c)] + source * padding(c); }
  Tensor rows_of(const Tensor& x_ND, int64_t c) const {
    return x_ND.narrow(0, group_.size() * padded_[at(c)], group_.size() * padding(c));
  }

  void gather_counts() {
    const Tensor mine = at::full({1}, tokens_, at::kLong), all = at::empty({group_.size()}, at::kLong);
    group_.all_gather(all, mine).wait();
    all_tokens_.assign(all.const_data_ptr<int64_t>(), all.const_data_ptr<int64_t>() + group_.size());
  }

  void plan() {
    padded_.push_back(0);
    for (int64_t c = 0; c < chunks_; ++c) {
      int64_t most = 0;
      for (int64_t s = 0; s < group_.size(); ++s) most = std::max(most, own_count(s, c));
      padded_.push_back(padded_.back() + most);
    }
  }

  void begin_choices(const DispatchInput& input) {
    own_choices_ = at::zeros({padded_.back(), choice_bytes(k_)}, at::kByte);
    const ChoiceWriter writer{own_choices_.data_ptr<uint8_t>(), k_};
    const auto* weights = ops::pointer<float>(input.weights_TK);
    const auto* ids = ops::pointer<int64_t>(input.ids_TK);
    for (int64_t c = 0; c < chunks_; ++c) {
      for (int64_t i = 0; i < own_count(group_.rank(), c); ++i) {
        const int64_t token = own_begin(c) + i;
        writer.write(padded_[at(c)] + i, weights + token * k_, ids + token * k_);
      }
    }
    all_choices_ = at::empty({num_received(), choice_bytes(k_)}, at::kByte);
    choices_coming_ = group_.all_gather(all_choices_, own_choices_);
  }

  comm::Communicator& group_;
  int64_t chunks_, tokens_, k_;
  std::vector<int64_t> all_tokens_;  // for each rank
  std::vector<int64_t> padded_;      // begin of each chunk, in tokens with padding of one rank; the last entry is their
                                     // number
  Tensor own_choices_, all_choices_;
  comm::Pending choices_coming_;
  Received received_;
  std::vector<comm::Pending> sends_;
  std::vector<Return> returns_;
  Return weights_;
};

}  // namespace

std::unique_ptr<Exchange> exchange_by_allgather(const DispatchInput& input) {
  return std::make_unique<AllGather>(input);
}

}  // namespace athanor::moe
