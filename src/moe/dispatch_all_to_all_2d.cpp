// Two hops. A token is sent to each node that needs it once: to the rank there that has the same position as its own
// rank. That rank sends it to the other ranks of the node. Partial sums come back the same way, and are added in the
// node before they are sent to the other node. They are sent in fp32, so that a sum is rounded once.

#include <algorithm>

#include "comm/watches.h"
#include "moe/dispatch_form.h"
#include "moe/dispatch_hop.h"
#include "ops/device_dispatch.h"

namespace athanor::moe {
namespace {

// Returns ranks [first, first + step, …].
std::vector<int> every(int first, int step, int count) {
  std::vector<int> ranks;
  for (int i = 0; i < count; ++i) ranks.push_back(first + i * step);
  return ranks;
}

// On a device. The numbers of rows of the second hop are known before the first: a rank counts its rows for every rank
// of the group, and those that send into a node add up what they will receive for each of its ranks. So the host
// fetches the numbers of both hops in one copy.
class CountsOfBothHops {
 public:
  CountsOfBothHops(const DispatchInput& input, const std::vector<int>& across, const std::vector<int>& inside)
      : counts_(input.counts) {
    const auto nodes = static_cast<int64_t>(across.size()), inner = static_cast<int64_t>(inside.size()),
               chunks = input.options.chunks, experts = input.experts_per_rank;
    // In a dry run no data arrive, so the counts must read as zero.
    all_ = at::zeros({2 * (nodes + inner) * chunks}, input.ids_TK.options());
    take_parts(all_, nodes * chunks, &RowCounts::OfHop::here);
    const Tensor &of_across = counts_->hops[0].here, &of_inside = counts_->hops[1].here;

    const Tokens own = own_tokens(input);
    const ops::device_dispatch::HopTokens tokens{own.ids_TK, own.chunk_begin, own.begins_there};
    const Tensor of_ranks = at::empty({nodes * inner * chunks}, all_.options());
    ops::device_dispatch::count_rows(tokens, {0, experts, nodes * inner}, of_ranks);
    ops::device_dispatch::count_rows(tokens, {0, experts * inner, nodes}, of_across[0]);
    const Tensor go = at::cat({of_across[0].view({nodes, chunks}), of_ranks.view({nodes, inner * chunks})}, 1),
                 come = at::zeros_like(go);
    exchange(input.group, come, go, across);
    of_across[1].view({nodes, chunks}).copy_(come.narrow(1, 0, chunks));
    of_inside[0].copy_(come.narrow(1, chunks, inner * chunks).sum(0));
    exchange(input.group, of_inside[1].view({inner, chunks}), of_inside[0].view({inner, chunks}), inside);
    coming_.emplace(all_);
  }

  void learn() {
    if (!coming_) return;
    // In a played step no counts come, and the hops have their own.
    if (!all_.is_meta()) take_parts(coming_->get(), counts_->hops[0].here.size(1), &RowCounts::OfHop::on_host);
    coming_.reset();
  }

 private:
  // Cuts `all` into the numbers of the first hop, to peers and from them, and those of the second.
  void take_parts(const Tensor& all, int64_t of_across, Tensor RowCounts::OfHop::*part) {
    counts_->hops[0].*part = all.narrow(0, 0, 2 * of_across).view({2, of_across});
    counts_->hops[1].*part = all.narrow(0, 2 * of_across, all.numel() - 2 * of_across).view({2, -1});
  }

  static void exchange(comm::Communicator& group, const Tensor& come, const Tensor& go, const std::vector<int>& peers) {
    std::vector<int64_t> rows(static_cast<size_t>(group.size()), 0);
    for (const int peer : peers) rows[static_cast<size_t>(peer)] = 1;
    const comm::SendsFor purpose(TrafficPurpose::kTokens);
    group.all_to_all(come, go, rows, rows).wait();
  }

  std::shared_ptr<RowCounts> counts_;
  Tensor all_;
  std::optional<ops::Fetch> coming_;
};

class AllToAll2d : public Exchange {
 public:
  explicit AllToAll2d(const DispatchInput& input)
      : inner_ranks_(input.options.inner_ranks), node_(input.group.rank() / inner_ranks_), k_(input.k()),
        num_experts_(input.experts_per_rank * input.group.size()), chunks_(input.options.chunks),
        is_queued_(input.form.is_queued()),
        across_ranks_(every(input.group.rank() % inner_ranks_, inner_ranks_, input.group.size() / inner_ranks_)),
        inside_ranks_(every(node_ * inner_ranks_, 1, inner_ranks_)), both_(count_both(input)),
        across_(input, across_ranks_, own_tokens(input), 0, input.experts_per_rank * inner_ranks_,
                counts_of_hop(input, 0), most_across(input), learn_counts()),
        inside_(input, inside_ranks_, with_sources(input.group.rank() % inner_ranks_),
                node_ * inner_ranks_ * input.experts_per_rank, input.experts_per_rank, counts_of_hop(input, 1),
                input.most_choices(input.experts_per_rank, input.group.size() / inner_ranks_), learn_counts()) {
    received_.choices_played = played_choices_of_chunks(input);
  }

  int64_t num_chunks() const override { return chunks_; }
  int64_t num_received() override { return inside_.num_received(); }

  const Received& received() override {
    if (received_.ids_NK.defined()) return received_;
    const Tokens& tokens = inside_.received();
    received_.chunk_begin = tokens.chunk_begin;
    received_.weights_NK = tokens.weights_TK.narrow(1, 0, k_).contiguous();
    received_.ids_NK = tokens.ids_TK.narrow(1, 0, k_).contiguous();
    if (is_queued_) {
      order_there(tokens.ids_TK.select(1, k_));
      return received_;
    }
    if (tokens.ids_TK.is_meta()) {  // in a played step, where no source is known
      received_.canonical = {{0, inside_.num_received()}};
      return received_;
    }
    std::vector<std::pair<int64_t, Received::Run>> runs;  // by source; within a source they arrive in order
    const auto* ids = tokens.ids_TK.const_data_ptr<int64_t>();
    for (int64_t n = 0; n < inside_.num_received(); ++n) {
      const int64_t source = ids[n * (k_ + 1) + k_] - num_experts_;
      if (runs.empty() || runs.back().first != source) runs.push_back({source, {n, 0}});
      ++runs.back().second.count;
    }
    std::ranges::stable_sort(runs, {}, [](const auto& run) { return run.first; });
    for (const auto& run : runs) received_.canonical.push_back(run.second);
    return received_;
  }

  void begin_send(int64_t chunk, const Tensor& x_TD, const Tensor& x_ND) override {
    if (chunk == 0) {
      crossed_ = at::empty({across_.num_received(), x_TD.size(1)}, x_TD.options());
      target_ = x_ND;
      next_send_ = 0;
    }
    across_.begin_send(chunk, x_TD, crossed_);
  }
  void advance_send(int64_t chunk) override {
    if (chunk < next_send_) return;
    next_send_ = chunk + 1;
    across_.finish_send(chunk);
    inside_.begin_send(chunk, crossed_, target_);
  }
  void finish_send(int64_t chunk) override {
    advance_send(chunk);
    inside_.finish_send(chunk);
    if (chunk + 1 == chunks_) crossed_ = target_ = Tensor();
  }

  void begin_return(int64_t chunk, const Tensor& partial_nD) override {
    if (chunk == 0) {
      node_sums_ = at::empty({across_.num_received(), partial_nD.size(1)}, partial_nD.options().dtype(at::kFloat));
      next_return_ = 0;
    }
    inside_.begin_return(chunk, partial_nD);
  }
  void advance_return(int64_t chunk) override {
    if (chunk < next_return_) return;
    next_return_ = chunk + 1;
    inside_.finish_return(chunk, node_sums_);
    const auto& begins = across_.come().chunk_begin;
    const int64_t begin = begins[static_cast<size_t>(chunk)], end = begins[static_cast<size_t>(chunk + 1)];
    across_.begin_return(chunk, node_sums_.narrow(0, begin, end - begin));
  }
  void finish_return(int64_t chunk, const Tensor& sum_TD) override {
    advance_return(chunk);
    across_.finish_return(chunk, sum_TD);
    if (chunk + 1 == chunks_) node_sums_ = Tensor();
  }

  void begin_return_weights(const Tensor& dweights_NK) override {
    inside_.begin_return_weights(at::constant_pad_nd(dweights_NK, {0, 1}).contiguous());
  }
  Tensor finish_return_weights() override {
    across_.begin_return_weights(inside_.finish_return_weights().narrow(1, 0, k_).contiguous());
    return across_.finish_return_weights();
  }

 private:
  int64_t most_across(const DispatchInput& input) const {
    return input.most_choices(input.experts_per_rank * inner_ranks_, 1);
  }
  std::optional<CountsOfBothHops> count_both(const DispatchInput& input) const {
    if (!is_queued_ || input.counts->hops[0].on_host.defined() || most_across(input) >= 0) return std::nullopt;
    return std::optional<CountsOfBothHops>(std::in_place, input, across_ranks_, inside_ranks_);
  }
  std::function<void()> learn_counts() {
    if (!both_) return {};
    return [this] { both_->learn(); };
  }

  // Returns the tokens that other nodes sent to this rank, with one more choice, of no expert, that names the source.
  Tokens with_sources(int64_t inner_rank) {
    const Tokens& tokens = across_.received();
    const Tensor source = at::empty({across_.num_received(), 1}, tokens.ids_TK.options());
    for (int64_t c = 0; c < chunks_; ++c) {
      int64_t begin = tokens.chunk_begin[static_cast<size_t>(c)];
      for (size_t node = 0; node < across_.num_peers(); ++node) {
        const int64_t count = across_.received_from(node, c),
                      rank = static_cast<int64_t>(node) * inner_ranks_ + inner_rank;
        source.narrow(0, begin, count).fill_(num_experts_ + rank);
        begin += count;
      }
    }
    return {tokens.chunk_begin, at::constant_pad_nd(tokens.weights_TK, {0, 1}).contiguous(),
            at::cat({tokens.ids_TK, source}, 1).contiguous(), tokens.begins_there};
  }

  // Within a chunk tokens arrive by rank of the node, then by node of their source.
  void order_there(const Tensor& source_N) {
    const bool in_order = chunks_ == 1 && (inner_ranks_ == 1 || across_.num_peers() == 1);
    if (!in_order)
      received_.arrival_N = std::get<1>(at::sort(source_N, /*stable=*/true, /*dim=*/0, /*descending=*/false));
    received_.most_choices = inside_.come().choices;
  }

  int inner_ranks_, node_;
  int64_t k_, num_experts_, chunks_;
  bool is_queued_;
  std::vector<int> across_ranks_, inside_ranks_;
  std::optional<CountsOfBothHops> both_;
  Hop across_, inside_;
  Received received_;
  Tensor crossed_, target_, node_sums_;  // tokens between the hops, in both directions
  int64_t next_send_ = 0, next_return_ = 0;
};

}  // namespace

std::unique_ptr<Exchange> exchange_by_all_to_all_2d(const DispatchInput& input) {
  return std::make_unique<AllToAll2d>(input);
}

}  // namespace athanor::moe
