// A token is sent once to each rank that owns one of its experts: one hop.

#include <numeric>

#include "moe/dispatch_form.h"
#include "moe/dispatch_hop.h"

namespace athanor::moe {
namespace {

class AllToAll : public Exchange {
 public:
  explicit AllToAll(const DispatchInput& input)
      : hop_(input, all_ranks(input.group), own_tokens(input), 0, input.experts_per_rank, counts_of_hop(input, 0),
             input.most_choices(input.experts_per_rank, 1)),
        is_queued_(input.form.is_queued()), ranks_(static_cast<size_t>(input.group.size())),
        chunks_(input.options.chunks) {
    received_.choices_played = played_choices_of_chunks(input);
  }

  int64_t num_chunks() const override { return chunks_; }
  int64_t num_received() override { return hop_.num_received(); }

  const Received& received() override {
    if (received_.ids_NK.defined()) return received_;
    const Tokens& tokens = hop_.received();
    received_.chunk_begin = tokens.chunk_begin;
    received_.weights_NK = tokens.weights_TK;
    received_.ids_NK = tokens.ids_TK;
    if (is_queued_) {
      received_.arrival_N = hop_.order_of_received();  // by peer is by source rank
      received_.most_choices = hop_.come().choices;
      return received_;
    }
    for (size_t source = 0; source < ranks_; ++source) {
      for (int64_t c = 0; c < chunks_; ++c) {
        int64_t begin = tokens.chunk_begin[static_cast<size_t>(c)];
        for (size_t before = 0; before < source; ++before) begin += hop_.received_from(before, c);
        if (const int64_t count = hop_.received_from(source, c)) received_.canonical.push_back({begin, count});
      }
    }
    return received_;
  }

  void begin_send(int64_t chunk, const Tensor& x_TD, const Tensor& x_ND) override {
    hop_.begin_send(chunk, x_TD, x_ND);
  }
  void finish_send(int64_t chunk) override { hop_.finish_send(chunk); }
  void begin_return(int64_t chunk, const Tensor& partial_nD) override { hop_.begin_return(chunk, partial_nD); }
  void finish_return(int64_t chunk, const Tensor& sum_TD) override { hop_.finish_return(chunk, sum_TD); }
  void begin_return_weights(const Tensor& dweights_NK) override { hop_.begin_return_weights(dweights_NK); }
  Tensor finish_return_weights() override { return hop_.finish_return_weights(); }

 private:
  static std::vector<int> all_ranks(const comm::Communicator& group) {
    std::vector<int> ranks(static_cast<size_t>(group.size()));
    std::iota(ranks.begin(), ranks.end(), 0);
    return ranks;
  }

  Hop hop_;
  bool is_queued_;
  size_t ranks_;
  int64_t chunks_;
  Received received_;
};

}  // namespace

std::unique_ptr<Exchange> exchange_by_all_to_all(const DispatchInput& input) {
  return std::make_unique<AllToAll>(input);
}

}  // namespace athanor::moe
