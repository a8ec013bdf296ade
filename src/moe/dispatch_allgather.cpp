// Every rank gets all tokens of all ranks, in chunks that are padded to the most tokens that a rank has in them.

#include "comm/watches.h"
#include "moe/dispatch_choices.h"
#include "moe/dispatch_form.h"
#include "moe/dispatch_gathered.h"
#include "ops/played.h"
#include "ops/transfer.h"

namespace athanor::moe {
namespace {

// Returns the number of tokens of each rank. On a device the host waits, unless all have the same.
std::vector<int64_t> tokens_of_ranks(const DispatchInput& input) {
  const auto size = static_cast<size_t>(input.group.size());
  if (input.known.equal) return std::vector<int64_t>(size, input.num_tokens());
  const auto options = input.ids_TK.options();
  const Tensor mine = at::full({1}, input.num_tokens(), options), all = at::empty({input.group.size()}, options);
  const comm::SendsFor purpose(TrafficPurpose::kTokens);
  input.group.all_gather(all, mine).wait();
  const Tensor here = ops::fetch(all);
  return {here.const_data_ptr<int64_t>(), here.const_data_ptr<int64_t>() + here.numel()};
}

}  // namespace

GatheredExchange::GatheredExchange(const DispatchInput& input)
    : group_(input.group), chunks_(input.options.chunks), tokens_(input.num_tokens()), k_(input.k()),
      all_(tokens_of_ranks(input), chunks_), sends_(at(chunks_)) {}

void GatheredExchange::begin_choices(const Tensor& own_choices) {
  own_choices_ = own_choices;
  all_choices_ = at::empty({num_received(), choice_bytes(k_)}, own_choices.options());
  const comm::SendsFor purpose(TrafficPurpose::kTokens);
  choices_coming_ = group_.all_gather(all_choices_, own_choices_);
}

void GatheredExchange::begin_send(int64_t chunk, const Tensor& x_TD, const Tensor& x_ND) {
  const Tensor own = x_ND.narrow(0, all_.arrival(group_.rank(), chunk), all_.padding(chunk));
  const int64_t count = own_count(chunk), padding = all_.padding(chunk) - count;
  own.narrow(0, 0, count).copy_(x_TD.narrow(0, own_begin(chunk), count));
  // Padding chooses no expert, but uninitialised memory would be sent.
  if (padding > 0) own.narrow(0, count, padding).zero_();
  const Tensor all = x_ND.narrow(0, all_.chunk_begin(chunk), group_.size() * all_.padding(chunk));
  const comm::SendsFor purpose(TrafficPurpose::kTokens);
  sends_[at(chunk)] = group_.all_gather(all, own);
}

namespace {

class AllGather : public GatheredExchange {
 public:
  explicit AllGather(const DispatchInput& input) : GatheredExchange(input), returns_(at(chunks_)) {
    begin_choices(padded_choices(input));
  }

  const Received& received() override {
    if (received_.weights_NK.defined()) return received_;
    choices_coming_.wait();
    const int64_t n = num_received();
    const auto options = all_choices_.options();
    received_.weights_NK = at::empty({n, k_}, options.dtype(at::kFloat));
    received_.ids_NK = at::full({n, k_}, -1, options.dtype(at::kLong));  // padding chooses no expert
    auto* weights = ops::pointer<float>(received_.weights_NK);
    auto* ids = ops::pointer<int64_t>(received_.ids_NK);
    const ChoiceReader reader{ops::pointer<uint8_t>(all_choices_), k_};
    const bool is_played = ops::played("read_choices", {all_choices_}, {received_.weights_NK, received_.ids_NK});
    for (int64_t c = 0; c <= chunks_; ++c) received_.chunk_begin.push_back(all_.chunk_begin(c));
    for (int64_t s = 0; s < group_.size(); ++s) {
      for (int64_t c = 0; c < chunks_; ++c) {
        const int64_t begin = all_.arrival(s, c), count = all_.count(s, c);
        for (int64_t i = 0; i < count && !is_played; ++i) {
          const int64_t to = (begin + i) * k_;
          reader.read(s * all_.of_rank() + all_.padded(c) + i, weights + to, ids + to);
        }
        if (count > 0) received_.canonical.push_back({begin, count});
      }
    }
    all_choices_.reset();
    return received_;
  }

  void begin_return(int64_t chunk, const Tensor& partial_nD) override {
    Return& r = returns_[at(chunk)];
    r.partial = partial_nD;
    r.sum = at::empty({all_.padding(chunk), partial_nD.size(1)}, partial_nD.options());
    const comm::SendsFor purpose(TrafficPurpose::kTokens);
    r.coming = group_.reduce_scatter(r.sum, r.partial);
  }
  void finish_return(int64_t chunk, const Tensor& sum_TD) override {
    Return& r = returns_[at(chunk)];
    r.coming.wait();
    const int64_t count = own_count(chunk);
    sum_TD.narrow(0, own_begin(chunk), count).copy_(r.sum.narrow(0, 0, count));
    r = {};
  }

  void begin_return_weights(const Tensor& dweights_NK) override {
    weights_.partial = at::empty({group_.size(), all_.of_rank(), k_}, dweights_NK.options());
    for (int64_t s = 0; s < group_.size(); ++s) {
      for (int64_t c = 0; c < chunks_; ++c) {
        weights_.partial[s]
            .narrow(0, all_.padded(c), all_.padding(c))
            .copy_(dweights_NK.narrow(0, all_.arrival(s, c), all_.padding(c)));
      }
    }
    weights_.sum = at::empty({all_.of_rank(), k_}, dweights_NK.options());
    const comm::SendsFor purpose(TrafficPurpose::kTokens);
    weights_.coming = group_.reduce_scatter(weights_.sum, weights_.partial);
  }
  Tensor finish_return_weights() override {
    weights_.coming.wait();
    const Tensor dweights_TK = at::empty({tokens_, k_}, weights_.sum.options());
    for (int64_t c = 0; c < chunks_; ++c) {
      const int64_t count = own_count(c);
      dweights_TK.narrow(0, own_begin(c), count).copy_(weights_.sum.narrow(0, all_.padded(c), count));
    }
    weights_ = {};
    return dweights_TK;
  }

 private:
  struct Return {
    Tensor partial, sum;
    comm::Pending coming;
  };

  Tensor padded_choices(const DispatchInput& input) const {
    const Tensor choices = at::zeros({all_.of_rank(), choice_bytes(k_)}, input.ids_TK.options().dtype(at::kByte));
    if (ops::played("write_choices", {input.weights_TK, input.ids_TK}, {choices})) return choices;
    const ChoiceWriter writer{choices.data_ptr<uint8_t>(), k_};
    const auto* weights = ops::pointer<float>(input.weights_TK);
    const auto* ids = ops::pointer<int64_t>(input.ids_TK);
    for (int64_t c = 0; c < chunks_; ++c) {
      for (int64_t i = 0; i < own_count(c); ++i) {
        const int64_t token = own_begin(c) + i;
        writer.write(all_.padded(c) + i, weights + token * k_, ids + token * k_);
      }
    }
    return choices;
  }

  std::vector<Return> returns_;
  Return weights_;
};

}  // namespace

std::unique_ptr<Exchange> HostForm::exchange_by_allgather(const DispatchInput& input) const {
  return std::make_unique<AllGather>(input);
}

}  // namespace athanor::moe
