#include "comm/watches.h"
#include "moe/dispatch_choices.h"
#include "moe/dispatch_form.h"
#include "moe/dispatch_gathered.h"
#include "ops/device/sum_terms.h"
#include "ops/device_dispatch.h"

namespace athanor::moe {
namespace {

class AllGatherOnDevice : public GatheredExchange {
 public:
  explicit AllGatherOnDevice(const DispatchInput& input) : GatheredExchange(input), returns_(at(chunks_)) {
    const Tensor choices = ops::device_dispatch::pack_choices(input.weights_TK, input.ids_TK);
    begin_choices(all_.is_padded() ? with_padding(choices, input.ids_TK) : choices);
  }

  const Received& received() override {
    if (received_.ids_NK.defined()) return received_;
    choices_coming_.wait();
    for (int64_t c = 0; c <= chunks_; ++c) received_.chunk_begin.push_back(all_.chunk_begin(c));
    received_.arrival_N = arrival();
    const auto choices = ops::device_dispatch::unpack_choices(all_choices_, received_.arrival_N);
    received_.weights_NK = choices.weights_NK;
    received_.ids_NK = choices.ids_NK;
    own_choices_.reset();
    all_choices_.reset();
    return received_;
  }

  void begin_return(int64_t chunk, const Tensor& partial_nD) override {
    returns_[at(chunk)] = begin_sum(partial_nD.view({group_.size(), all_.padding(chunk), partial_nD.size(1)}));
  }
  void finish_return(int64_t chunk, const Tensor& sum_TD) override {
    Return& r = returns_[at(chunk)];
    r.coming.wait();
    ops::device::sum_terms(r.parts, sum_TD.narrow(0, own_begin(chunk), own_count(chunk)));
    r = {};
  }

  void begin_return_weights(const Tensor& dweights_NK) override {
    const Tensor by_source =
        received_.arrival_N.defined() ? dweights_NK.index_select(0, received_.arrival_N) : dweights_NK;
    weights_ = begin_sum(by_source.view({group_.size(), all_.of_rank(), k_}));
  }
  Tensor finish_return_weights() override {
    weights_.coming.wait();
    const Tensor dweights_TK = at::empty({tokens_, k_}, weights_.parts.options());
    if (all_.of_rank() == tokens_) {
      ops::device::sum_terms(weights_.parts, dweights_TK);
    } else {  // the chunks of this rank are padded
      for (int64_t c = 0; c < chunks_; ++c) {
        ops::device::sum_terms(weights_.parts.narrow(1, all_.padded(c), all_.padding(c)).contiguous(),
                               dweights_TK.narrow(0, own_begin(c), own_count(c)));
      }
    }
    weights_ = {};
    return dweights_TK;
  }

 private:
  struct Return {
    Tensor partial, parts;  // [ranks, rows, width]: what is sent to each rank, and what each sent
    comm::Pending coming;
  };

  Return begin_sum(const Tensor& partial) {
    Return r{partial, at::empty_like(partial), {}};
    const comm::SendsFor purpose(TrafficPurpose::kTokens);
    r.coming = group_.all_to_all(r.parts, r.partial);
    return r;
  }

  // The place of each gathered choice among the tokens that arrive; undefined if the order is the same.
  Tensor arrival() const {
    if (chunks_ == 1) return {};
    const Tensor places = at::arange(all_.num_tokens(), own_choices_.options().dtype(at::kLong));
    std::vector<Tensor> by_source;
    for (int64_t s = 0; s < group_.size(); ++s) {
      for (int64_t c = 0; c < chunks_; ++c) by_source.push_back(places.narrow(0, all_.arrival(s, c), all_.padding(c)));
    }
    return at::cat(by_source);
  }

  // Padding has ids of −1.
  Tensor with_padding(const Tensor& choices, const Tensor& ids_TK) const {
    const Tensor nowhere = at::full({all_.of_rank(), k_}, -1, ids_TK.options());
    const Tensor padded = ops::device_dispatch::pack_choices(nowhere.to(at::kFloat), nowhere);
    for (int64_t c = 0; c < chunks_; ++c) {
      padded.narrow(0, all_.padded(c), own_count(c)).copy_(choices.narrow(0, own_begin(c), own_count(c)));
    }
    return padded;
  }

  std::vector<Return> returns_;
  Return weights_;
};

}  // namespace

std::unique_ptr<Exchange> DeviceForm::exchange_by_allgather(const DispatchInput& input) const {
  return std::make_unique<AllGatherOnDevice>(input);
}

}  // namespace athanor::moe
