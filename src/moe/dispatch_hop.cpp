#include "moe/dispatch_hop.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "kernels/partial_sums.h"
#include "moe/dispatch_choices.h"

namespace athanor::moe {
namespace {

int64_t sum(std::span<const int64_t> counts) { return std::accumulate(counts.begin(), counts.end(), int64_t{0}); }

// Maps rows that are ordered by chunk, then peer, to the order of the peers' messages: by peer, then chunk. Calls f(row
// by chunk, row by peer, count).
template <class F>
void for_messages(const std::vector<std::vector<int64_t>>& counts, F f) {
  const size_t peers = counts.front().size();
  int64_t by_peer = 0;
  for (size_t p = 0; p < peers; ++p) {
    int64_t chunk_begin = 0;
    for (const auto& chunk : counts) {
      const int64_t before = sum(std::span(chunk).first(p));
      f(chunk_begin + before, by_peer, chunk[p]);
      by_peer += chunk[p];
      chunk_begin += sum(chunk);
    }
  }
}

}  // namespace

Tokens own_tokens(const DispatchInput& input) {
  Tokens tokens{{}, input.weights_TK, input.ids_TK};
  const int64_t chunks = input.options.chunks;
  for (int64_t c = 0; c <= chunks; ++c) tokens.chunk_begin.push_back(chunk_begin(input.num_tokens(), chunks, c));
  return tokens;
}

Hop::Hop(comm::Communicator& group, std::vector<int> peers, Tokens tokens, int64_t first_expert,
         int64_t experts_per_peer, RowCounts::OfHop& counts)
    : group_(group), peers_(std::move(peers)), tokens_(std::move(tokens)), first_expert_(first_expert),
      experts_per_peer_(experts_per_peer), sends_(chunk_at(num_chunks())), returns_(chunk_at(num_chunks())) {
  plan();
  if (!counts.on_host.defined()) exchange_counts(counts);
  read_counts(counts);
  begin_choices();
}

int64_t Hop::peer_of(int64_t id) const {
  if (id < first_expert_) return -1;
  const int64_t peer = (id - first_expert_) / experts_per_peer_;
  return peer < static_cast<int64_t>(peers_.size()) ? peer : -1;
}

void Hop::plan() {
  const auto n = static_cast<int64_t>(peers_.size()), k = tokens_.ids_TK.size(1);
  const auto* ids = ops::pointer<int64_t>(tokens_.ids_TK);
  // Rows of a chunk, and expert ids in messages (dispatch_choices.h), are counted in 32 bits.
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  ATHANOR_ASSERT(tokens_.chunk_begin.back() * std::min(n, k) <= kMost &&
                 first_expert_ + n * experts_per_peer_ <= kMost);
  row_of_.assign(static_cast<size_t>(tokens_.chunk_begin.back() * n), -1);
  for (int64_t c = 0; c < num_chunks(); ++c) {
    const int64_t begin = tokens_.chunk_begin[chunk_at(c)], end = tokens_.chunk_begin[chunk_at(c + 1)];
    Counts counts(peers_.size(), 0);
    for (int64_t t = begin; t < end; ++t) {
      for (int64_t j = 0; j < k; ++j) {
        const int64_t p = peer_of(ids[t * k + j]);
        if (p < 0) continue;
        int32_t& row = row_of_[static_cast<size_t>(t * n + p)];
        if (row < 0) row = static_cast<int32_t>(counts[static_cast<size_t>(p)]++);  // among the rows of p, for now
      }
    }
    std::vector<int64_t> first(peers_.size(), 0);
    std::exclusive_scan(counts.begin(), counts.end(), first.begin(), int64_t{0});
    std::vector<int64_t> rows(static_cast<size_t>(sum(counts)));
    for (int64_t t = begin; t < end; ++t) {
      for (int64_t p = 0; p < n; ++p) {
        int32_t& row = row_of_[static_cast<size_t>(t * n + p)];
        if (row < 0) continue;
        row += static_cast<int32_t>(first[static_cast<size_t>(p)]);
        rows[static_cast<size_t>(row)] = t;
      }
    }
    rows_.push_back(std::move(rows));
    go_.push_back(std::move(counts));
  }
}

Hop::Flight Hop::exchange(const Tensor& rows, const Counts& there, const Counts& here, const Tensor& into) {
  std::vector<int64_t> in_rows(static_cast<size_t>(group_.size()), 0), out_rows = in_rows;
  for (size_t p = 0; p < peers_.size(); ++p) {
    in_rows[static_cast<size_t>(peers_[p])] = there[p];
    out_rows[static_cast<size_t>(peers_[p])] = here[p];
  }
  return {rows, into, group_.all_to_all(into, rows, out_rows, in_rows)};
}

Hop::Counts Hop::total(const std::vector<Counts>& counts) const {
  Counts all(peers_.size(), 0);
  for (const Counts& chunk : counts) {
    for (size_t p = 0; p < all.size(); ++p) all[p] += chunk[p];
  }
  return all;
}

void Hop::exchange_counts(RowCounts::OfHop& counts) {
  const auto n = static_cast<int64_t>(peers_.size());
  // In a dry run no data arrive, so the counts must read as zero.
  counts.on_host = counts.here = at::zeros({2, n * num_chunks()}, at::kLong);
  const Tensor go = counts.here[0], come = counts.here[1];
  auto* to = go.data_ptr<int64_t>();
  for (size_t p = 0; p < peers_.size(); ++p) {
    for (const Counts& chunk : go_) *to++ = chunk[p];
  }
  const Counts each(peers_.size(), num_chunks());
  exchange(go, each, each, come).over.wait();
}

void Hop::read_counts(const RowCounts::OfHop& counts) {
  const auto n = static_cast<int64_t>(peers_.size());
  ATHANOR_ASSERT(counts.on_host.numel() == 2 * n * num_chunks());
  const auto* from = counts.on_host.const_data_ptr<int64_t>() + n * num_chunks();
  come_begin_.push_back(0);
  for (int64_t c = 0; c < num_chunks(); ++c) {
    Counts chunk;
    for (int64_t p = 0; p < n; ++p) chunk.push_back(from[p * num_chunks() + c]);
    come_begin_.push_back(come_begin_.back() + sum(chunk));
    come_.push_back(std::move(chunk));
  }
}

void Hop::begin_choices() {
  const int64_t k = tokens_.ids_TK.size(1);
  const Counts go = total(go_), come = total(come_);
  const Tensor there = at::empty({sum(go), choice_bytes(k)}, at::kByte);
  const ChoiceWriter writer{there.data_ptr<uint8_t>(), k};
  const auto* weights = ops::pointer<float>(tokens_.weights_TK);
  const auto* ids = ops::pointer<int64_t>(tokens_.ids_TK);
  std::vector<int64_t> token_of;  // by chunk
  for (const auto& rows : rows_) token_of.insert(token_of.end(), rows.begin(), rows.end());
  for_messages(go_, [&](int64_t by_chunk, int64_t by_peer, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      const int64_t token = token_of[static_cast<size_t>(by_chunk + i)];
      writer.write(by_peer + i, weights + token * k, ids + token * k);
    }
  });
  choices_ = exchange(there, go, come, at::empty({num_received(), choice_bytes(k)}, at::kByte));
}

const Tokens& Hop::received() {
  if (received_.ids_TK.defined()) return received_;
  choices_.over.wait();
  const int64_t k = tokens_.ids_TK.size(1);
  received_ = {come_begin_, at::empty({num_received(), k}, at::kFloat), at::empty({num_received(), k}, at::kLong)};
  auto* weights = received_.weights_TK.data_ptr<float>();
  auto* ids = received_.ids_TK.data_ptr<int64_t>();
  const ChoiceReader reader{choices_.here.const_data_ptr<uint8_t>(), k};
  for_messages(come_, [&](int64_t by_chunk, int64_t by_peer, int64_t count) {
    for (int64_t i = 0; i < count; ++i)
      reader.read(by_peer + i, weights + (by_chunk + i) * k, ids + (by_chunk + i) * k);
  });
  choices_ = {};
  return received_;
}

void Hop::begin_send(int64_t chunk, const Tensor& x_TD, const Tensor& x_ND) {
  const auto& rows = rows_[chunk_at(chunk)];
  const Tensor there = at::empty({static_cast<int64_t>(rows.size()), x_TD.size(1)}, x_TD.options());
  copy_rows(x_TD, rows, there);
  const int64_t begin = come_begin_[chunk_at(chunk)], end = come_begin_[chunk_at(chunk + 1)];
  sends_[chunk_at(chunk)] =
      exchange(there, go_[chunk_at(chunk)], come_[chunk_at(chunk)], x_ND.narrow(0, begin, end - begin));
}

void Hop::finish_send(int64_t chunk) {
  sends_[chunk_at(chunk)].over.wait();
  sends_[chunk_at(chunk)] = {};
}

void Hop::begin_return(int64_t chunk, const Tensor& partial_nD) {
  const auto rows = static_cast<int64_t>(rows_[chunk_at(chunk)].size());
  returns_[chunk_at(chunk)] = exchange(partial_nD, come_[chunk_at(chunk)], go_[chunk_at(chunk)],
                                       at::empty({rows, partial_nD.size(1)}, partial_nD.options()));
}

void Hop::finish_return(int64_t chunk, const Tensor& sum_TD) {
  Flight& flight = returns_[chunk_at(chunk)];
  flight.over.wait();
  const auto n = static_cast<int64_t>(peers_.size()), width = sum_TD.size(1);
  const int64_t begin = tokens_.chunk_begin[chunk_at(chunk)], end = tokens_.chunk_begin[chunk_at(chunk + 1)];
  ops::with_element(flight.here, [&](auto* from_tag) {
    ops::with_element(sum_TD, [&](auto* to_tag) {
      using From = std::decay_t<decltype(*from_tag)>;
      using To = std::decay_t<decltype(*to_tag)>;
      const From* rows = ops::pointer<From>(flight.here);
      To* sums = ops::pointer<To>(sum_TD) + begin * width;
      const int32_t* row_of = row_of_.data() + begin * n;
      ops::for_rows(end - begin, width * n, [&](int64_t first, int64_t last) {
        kernels::sum_partials<From, To>(rows, row_of, n, sums, first, last, width);
      });
    });
  });
  flight = {};
}

void Hop::begin_return_weights(const Tensor& dweights_NK) {
  const int64_t k = dweights_NK.size(1);
  const Tensor there = at::empty_like(dweights_NK);
  for_messages(come_, [&](int64_t by_chunk, int64_t by_peer, int64_t count) {
    there.narrow(0, by_peer, count).copy_(dweights_NK.narrow(0, by_chunk, count));
  });
  const Counts go = total(go_);
  dweights_ = exchange(there, total(come_), go, at::empty({sum(go), k}, at::kFloat));
}

Tensor Hop::finish_return_weights() {
  dweights_.over.wait();
  const int64_t k = tokens_.ids_TK.size(1), tokens = tokens_.chunk_begin.back();
  const auto n = static_cast<int64_t>(peers_.size());
  const Tensor dweights_TK = at::zeros({tokens, k}, at::kFloat);
  const auto* ids = ops::pointer<int64_t>(tokens_.ids_TK);
  const auto* from = dweights_.here.const_data_ptr<float>();
  auto* to = dweights_TK.data_ptr<float>();
  std::vector<int64_t> token_of;
  for (const auto& rows : rows_) token_of.insert(token_of.end(), rows.begin(), rows.end());
  int64_t chunk = 0, p = 0;
  for_messages(go_, [&](int64_t by_chunk, int64_t by_peer, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      const int64_t token = token_of[static_cast<size_t>(by_chunk + i)];
      for (int64_t j = 0; j < k; ++j) {
        // + 0 turns −0 into 0, as a reduce-scatter does.
        if (peer_of(ids[token * k + j]) == p) to[token * k + j] = from[(by_peer + i) * k + j] + 0.0f;
      }
    }
    if (++chunk == num_chunks()) chunk = 0, ++p;
  });
  ATHANOR_ASSERT(p == n);
  dweights_ = {};
  return dweights_TK;
}

}  // namespace athanor::moe
