#include <algorithm>
#include <limits>
#include <numeric>
#include <span>

#include "kernels/partial_sums.h"
#include "moe/dispatch_choices.h"
#include "moe/dispatch_form.h"
#include "moe/played_choices.h"
#include "ops/played.h"

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

class OnHostRows : public HopRows {
 public:
  OnHostRows(const Tokens& tokens, const PeersOfHop& peers) : tokens_(tokens), peers_(peers) { plan(); }

  void count(const Tensor& counts) override {
    if (ops::played("count_rows", {tokens_.ids_TK}, {counts})) return;
    auto* to = counts.data_ptr<int64_t>();
    for (size_t p = 0; p < static_cast<size_t>(peers_.count); ++p) {
      for (const auto& chunk : go_) *to++ = chunk[p];
    }
  }
  Tensor pack_choices(const Tensor& counts) override;
  void set_numbers(const RowNumbers& /*go*/, const RowNumbers& come, const Tensor& /*counts*/) override {
    come_ = come;
  }
  Tokens unpack_choices(const Tensor& bytes) override;
  Tensor gather(int64_t chunk, const Tensor& x_TD) override {
    const auto& rows = rows_[static_cast<size_t>(chunk)];
    const Tensor out = at::empty({static_cast<int64_t>(rows.size()), x_TD.size(1)}, x_TD.options());
    copy_rows(x_TD, rows, out);
    return out;
  }
  void add_up(int64_t chunk, const Tensor& rows, const Tensor& sum_TD) override;
  Tensor by_peer(const Tensor& dweights_NK) override {
    const Tensor rows = at::empty_like(dweights_NK);
    for_messages(come_.of_peer, [&](int64_t by_chunk, int64_t by_peer, int64_t count) {
      rows.narrow(0, by_peer, count).copy_(dweights_NK.narrow(0, by_chunk, count));
    });
    return rows;
  }
  Tensor weight_gradients(const Tensor& rows) override;

 private:
  void plan();
  void plan_chunk(int64_t begin, int64_t end);
  void plan_played(int64_t tokens);
  // The token of each row, by chunk.
  std::vector<int64_t> token_of_rows() const {
    std::vector<int64_t> tokens;
    for (const auto& rows : rows_) tokens.insert(tokens.end(), rows.begin(), rows.end());
    return tokens;
  }

  Tokens tokens_;
  PeersOfHop peers_;
  std::vector<std::vector<int64_t>> rows_;  // for each chunk: the token of each row that is sent
  std::vector<std::vector<int64_t>> go_;    // for each chunk: rows to each peer
  std::vector<int32_t> row_of_;             // [T, n]: a token's row in its chunk, or −1
  RowNumbers come_;
};

void OnHostRows::plan() {
  const int64_t n = peers_.count, k = tokens_.ids_TK.size(1);
  // Rows of a chunk, and expert ids in messages (dispatch_choices.h), are counted in 32 bits.
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  ATHANOR_ASSERT(tokens_.num_tokens() * std::min(n, k) <= kMost &&
                 peers_.first_expert + n * peers_.experts_per_peer <= kMost);
  row_of_.assign(static_cast<size_t>(tokens_.num_tokens() * n), -1);
  for (size_t c = 0; c + 1 < tokens_.chunk_begin.size(); ++c)
    plan_chunk(tokens_.chunk_begin[c], tokens_.chunk_begin[c + 1]);
}

void OnHostRows::plan_played(int64_t tokens) {
  std::vector<int64_t> counts;
  for (int64_t p = 0; p < peers_.count; ++p)
    counts.push_back(played_tokens(tokens, experts_of_peer(peers_, p), experts_of_peers(peers_)));
  rows_.emplace_back(static_cast<size_t>(sum(counts)));
  go_.push_back(std::move(counts));
}

void OnHostRows::plan_chunk(int64_t begin, int64_t end) {
  if (tokens_.ids_TK.is_meta()) return plan_played(end - begin);
  const int64_t n = peers_.count, k = tokens_.ids_TK.size(1);
  const auto* ids = ops::pointer<int64_t>(tokens_.ids_TK);
  std::vector<int64_t> counts(static_cast<size_t>(n), 0);
  for (int64_t t = begin; t < end; ++t) {
    for (int64_t j = 0; j < k; ++j) {
      const int64_t p = peers_.peer_of(ids[t * k + j]);
      if (p < 0) continue;
      int32_t& row = row_of_[static_cast<size_t>(t * n + p)];
      if (row < 0) row = static_cast<int32_t>(counts[static_cast<size_t>(p)]++);  // among the rows of p, for now
    }
  }
  std::vector<int64_t> first(counts.size(), 0);
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

Tensor OnHostRows::pack_choices(const Tensor& /*counts*/) {
  const int64_t k = tokens_.ids_TK.size(1);
  const std::vector<int64_t> token_of = token_of_rows();
  const Tensor bytes =
      at::empty({static_cast<int64_t>(token_of.size()), choice_bytes(k)}, tokens_.ids_TK.options().dtype(at::kByte));
  if (ops::played("write_choices", {tokens_.weights_TK, tokens_.ids_TK}, {bytes})) return bytes;
  const ChoiceWriter writer{bytes.data_ptr<uint8_t>(), k};
  const auto* weights = ops::pointer<float>(tokens_.weights_TK);
  const auto* ids = ops::pointer<int64_t>(tokens_.ids_TK);
  for_messages(go_, [&](int64_t by_chunk, int64_t by_peer, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      const int64_t token = token_of[static_cast<size_t>(by_chunk + i)];
      writer.write(by_peer + i, weights + token * k, ids + token * k);
    }
  });
  return bytes;
}

Tokens OnHostRows::unpack_choices(const Tensor& bytes) {
  const int64_t k = tokens_.ids_TK.size(1), rows = bytes.size(0);
  const auto options = bytes.options();
  const Tokens received{come_.chunk_begin, at::empty({rows, k}, options.dtype(at::kFloat)),
                        at::empty({rows, k}, options.dtype(at::kLong))};
  if (ops::played("read_choices", {bytes}, {received.weights_TK, received.ids_TK})) return received;
  auto* weights = received.weights_TK.data_ptr<float>();
  auto* ids = received.ids_TK.data_ptr<int64_t>();
  const ChoiceReader reader{bytes.const_data_ptr<uint8_t>(), k};
  for_messages(come_.of_peer, [&](int64_t by_chunk, int64_t by_peer, int64_t count) {
    for (int64_t i = 0; i < count; ++i)
      reader.read(by_peer + i, weights + (by_chunk + i) * k, ids + (by_chunk + i) * k);
  });
  return received;
}

void OnHostRows::add_up(int64_t chunk, const Tensor& rows, const Tensor& sum_TD) {
  const int64_t n = peers_.count, width = sum_TD.size(1);
  const int64_t begin = tokens_.chunk_begin[static_cast<size_t>(chunk)],
                end = tokens_.chunk_begin[static_cast<size_t>(chunk + 1)];
  if (ops::played("sum_partials", {rows}, {sum_TD})) return;
  ops::with_element(rows, [&](auto* from_tag) {
    ops::with_element(sum_TD, [&](auto* to_tag) {
      using From = std::decay_t<decltype(*from_tag)>;
      using To = std::decay_t<decltype(*to_tag)>;
      const From* from = ops::pointer<From>(rows);
      To* sums = ops::pointer<To>(sum_TD) + begin * width;
      const int32_t* row_of = row_of_.data() + begin * n;
      ops::for_rows(end - begin, width * n, [&](int64_t first, int64_t last) {
        kernels::sum_partials<From, To>(from, row_of, n, sums, first, last, width);
      });
    });
  });
}

Tensor OnHostRows::weight_gradients(const Tensor& rows) {
  const int64_t k = tokens_.ids_TK.size(1);
  const Tensor dweights_TK = at::zeros({tokens_.num_tokens(), k}, rows.options());
  if (ops::played("weight_gradients", {rows}, {dweights_TK})) return dweights_TK;
  const auto* ids = ops::pointer<int64_t>(tokens_.ids_TK);
  const auto* from = rows.const_data_ptr<float>();
  auto* to = dweights_TK.data_ptr<float>();
  const std::vector<int64_t> token_of = token_of_rows();
  int64_t chunk = 0, p = 0;
  for_messages(go_, [&](int64_t by_chunk, int64_t by_peer, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      const int64_t token = token_of[static_cast<size_t>(by_chunk + i)];
      for (int64_t j = 0; j < k; ++j) {
        // + 0 turns −0 into 0, as a reduce-scatter does.
        if (peers_.peer_of(ids[token * k + j]) == p) to[token * k + j] = from[(by_peer + i) * k + j] + 0.0f;
      }
    }
    if (++chunk == tokens_.num_chunks()) chunk = 0, ++p;
  });
  ATHANOR_ASSERT(p == peers_.count);
  return dweights_TK;
}

}  // namespace

std::unique_ptr<HopRows> HostForm::hop_rows(const Tokens& tokens, const PeersOfHop& peers, int64_t /*room*/) const {
  return std::make_unique<OnHostRows>(tokens, peers);
}

}  // namespace athanor::moe
