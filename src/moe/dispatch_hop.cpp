#include "moe/dispatch_hop.h"

#include <algorithm>
#include <numeric>

#include "comm/watches.h"
#include "moe/dispatch_choices.h"
#include "moe/dispatch_form.h"
#include "moe/played_choices.h"

namespace athanor::moe {

RowNumbers::RowNumbers(const Tensor& counts, int64_t peers, int64_t chunks) {
  ATHANOR_ASSERT(counts.numel() == peers * chunks);
  const auto* count = ops::pointer<int64_t>(counts);
  for (int64_t c = 0; c < chunks; ++c) {
    std::vector<int64_t> rows;
    int64_t sum = 0, num_choices = 0;
    for (int64_t p = 0; p < peers; ++p) {
      rows.push_back(kernels::cuda::rows_of_count(count[p * chunks + c]));
      sum += rows.back();
      num_choices += kernels::cuda::choices_of_count(count[p * chunks + c]);
    }
    of_peer.push_back(std::move(rows));
    choices.push_back(num_choices);
    chunk_begin.push_back(chunk_begin.back() + sum);
  }
}

std::vector<int64_t> RowNumbers::of_all_chunks() const {
  std::vector<int64_t> all(of_peer.front().size(), 0);
  for (const auto& chunk : of_peer) {
    for (size_t p = 0; p < all.size(); ++p) all[p] += chunk[p];
  }
  return all;
}

Tokens own_tokens(const DispatchInput& input) {
  Tokens tokens{{}, input.weights_TK, input.ids_TK};
  const int64_t chunks = input.options.chunks;
  for (int64_t c = 0; c <= chunks; ++c) tokens.chunk_begin.push_back(chunk_begin(input.num_tokens(), chunks, c));
  return tokens;
}

std::vector<int64_t> played_choices_of_chunks(const DispatchInput& input) {
  std::vector<int64_t> choices;
  if (!input.ids_TK.is_meta()) return choices;
  const auto begins = own_tokens(input).chunk_begin;
  const ExpertRange experts{input.group.rank() * input.experts_per_rank, input.experts_per_rank};
  for (size_t c = 0; c + 1 < begins.size(); ++c)
    choices.push_back(played_choices(input.group.size() * (begins[c + 1] - begins[c]), experts));
  return choices;
}

namespace {

int64_t most_tokens_of_chunk(const Tokens& tokens) {
  int64_t most = 0;
  for (size_t c = 1; c < tokens.chunk_begin.size(); ++c)
    most = std::max(most, tokens.chunk_begin[c] - tokens.chunk_begin[c - 1]);
  return most;
}

}  // namespace

Hop::Hop(const DispatchInput& input, std::vector<int> peers, Tokens tokens, int64_t first_expert,
         int64_t experts_per_peer, std::shared_ptr<RowCounts::OfHop> counts, int64_t most_choices,
         std::function<void()> learn_counts)
    : group_(input.group), is_queued_(input.form.is_queued()), peers_(std::move(peers)), chunks_(tokens.num_chunks()),
      k_(tokens.ids_TK.size(1)), counts_(std::move(counts)), learn_counts_(std::move(learn_counts)),
      sends_(chunk_at(chunks_)), returns_(chunk_at(chunks_)) {
  const PeersOfHop of{first_expert, experts_per_peer, static_cast<int64_t>(peers_.size())};
  const int64_t room = most_choices < 0 ? -1 : std::min(most_choices, most_tokens_of_chunk(tokens));
  rows_ = input.form.hop_rows(tokens, of, room);
  if (tokens.ids_TK.is_meta()) played_counts_ = played_counts(tokens.chunk_begin, of, own_index());
  if (room >= 0) set_counts(tokens, room, most_choices);
  if (!counts_->on_host.defined() && !learn_counts_) {
    // In a dry run no data arrive, so the counts must read as zero.
    counts_->here = at::zeros({2, of.count * chunks_}, tokens.ids_TK.options());
    begin_counts();
  }
  packed_choices_ = rows_->pack_choices(counts_->here[0]);
  if (!is_queued_) learn_numbers();
}

// All messages have as many rows, on every rank.
void Hop::set_counts(const Tokens& tokens, int64_t room, int64_t most_choices) {
  const int64_t count = kernels::cuda::count_of(room, std::min(most_choices, room * k_));
  const std::vector<int64_t> shape = {2, static_cast<int64_t>(peers_.size()) * chunks_};
  counts_->here = at::full(shape, count, tokens.ids_TK.options());
  counts_->on_host = at::full(shape, count, at::kLong);
}

void Hop::begin_counts() {
  const Tensor go = counts_->here[0], come = counts_->here[1];
  rows_->count(go);
  const Counts each(peers_.size(), chunks_);
  counts_coming_ = exchange(go, each, each, come);
  if (!is_queued_) return;
  counts_coming_.over.wait();
  counts_coming_ = {};
  fetched_counts_.emplace(counts_->here);
}

int64_t Hop::own_index() const { return std::ranges::find(peers_, group_.rank()) - peers_.begin(); }

void Hop::learn_numbers() {
  if (come_) return;
  const bool are_known = counts_->on_host.defined();
  if (learn_counts_) {
    std::exchange(learn_counts_, nullptr)();
  } else if (fetched_counts_) {
    counts_->on_host = fetched_counts_->get();
  } else if (!are_known) {
    counts_coming_.over.wait();
    counts_->on_host = counts_->here;
  }
  if (!are_known && played_counts_.defined()) counts_->on_host = played_counts_;
  fetched_counts_.reset();
  counts_coming_ = {};
  const auto n = static_cast<int64_t>(peers_.size());
  go_.emplace(counts_->on_host[0], n, chunks_);
  come_.emplace(counts_->on_host[1], n, chunks_);
  rows_->set_numbers(*go_, *come_, counts_->here);
  choices_ =
      exchange(packed_choices_.narrow(0, 0, go_->chunk_begin.back()), go_->of_all_chunks(), come_->of_all_chunks(),
               at::empty({come_->chunk_begin.back(), choice_bytes(k_)}, packed_choices_.options()));
  packed_choices_.reset();
}

const RowNumbers& Hop::come() {
  learn_numbers();
  return *come_;
}

Hop::Flight Hop::exchange(const Tensor& rows, const Counts& there, const Counts& here, const Tensor& into) {
  std::vector<int64_t> in_rows(static_cast<size_t>(group_.size()), 0), out_rows = in_rows;
  for (size_t p = 0; p < peers_.size(); ++p) {
    in_rows[static_cast<size_t>(peers_[p])] = there[p];
    out_rows[static_cast<size_t>(peers_[p])] = here[p];
  }
  const comm::SendsFor purpose(TrafficPurpose::kTokens);
  return {rows, into, group_.all_to_all(into, rows, out_rows, in_rows)};
}

const Tokens& Hop::received() {
  if (received_.ids_TK.defined()) return received_;
  learn_numbers();
  choices_.over.wait();
  received_ = rows_->unpack_choices(choices_.here);
  choices_ = {};
  return received_;
}

void Hop::begin_send(int64_t chunk, const Tensor& x_TD, const Tensor& x_ND) {
  learn_numbers();
  const int64_t begin = come_->chunk_begin[chunk_at(chunk)], end = come_->chunk_begin[chunk_at(chunk + 1)];
  sends_[chunk_at(chunk)] = exchange(rows_->gather(chunk, x_TD), go_->of_peer[chunk_at(chunk)],
                                     come_->of_peer[chunk_at(chunk)], x_ND.narrow(0, begin, end - begin));
}

void Hop::finish_send(int64_t chunk) {
  sends_[chunk_at(chunk)].over.wait();
  sends_[chunk_at(chunk)] = {};
}

void Hop::begin_return(int64_t chunk, const Tensor& partial_nD) {
  const int64_t rows = go_->chunk_begin[chunk_at(chunk + 1)] - go_->chunk_begin[chunk_at(chunk)];
  returns_[chunk_at(chunk)] = exchange(partial_nD, come_->of_peer[chunk_at(chunk)], go_->of_peer[chunk_at(chunk)],
                                       at::empty({rows, partial_nD.size(1)}, partial_nD.options()));
}

void Hop::finish_return(int64_t chunk, const Tensor& sum_TD) {
  Flight& flight = returns_[chunk_at(chunk)];
  flight.over.wait();
  rows_->add_up(chunk, flight.here, sum_TD);
  flight = {};
}

void Hop::begin_return_weights(const Tensor& dweights_NK) {
  dweights_ = exchange(rows_->by_peer(dweights_NK), come_->of_all_chunks(), go_->of_all_chunks(),
                       at::empty({go_->chunk_begin.back(), dweights_NK.size(1)}, dweights_NK.options()));
}

Tensor Hop::finish_return_weights() {
  dweights_.over.wait();
  const Tensor dweights_TK = rows_->weight_gradients(dweights_.here);
  dweights_ = {};
  return dweights_TK;
}

}  // namespace athanor::moe
