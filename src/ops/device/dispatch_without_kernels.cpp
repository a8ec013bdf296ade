#include "ops/device/dispatch_without_kernels.h"

#include "ops/device/sum_terms.h"

namespace athanor::ops::device_dispatch::without_kernels {
namespace {

// Returns the peer of each choice, n for none; int64 [T, K].
Tensor peer_of(const Tensor& ids_TK, const PeersOfHop& peers) {
  const Tensor peer = at::div(ids_TK - peers.first_expert, peers.experts_per_peer, "floor");
  return at::where((peer < 0).logical_or(peer >= peers.count), peers.count, peer);
}

// Returns how many choices of each token each peer owns; int64 [T, n].
Tensor choices_of_peers(const Tensor& ids_TK, const PeersOfHop& peers) {
  const Tensor counts = at::zeros({ids_TK.size(0), peers.count + 1}, ids_TK.options());
  return counts.scatter_add_(1, peer_of(ids_TK, peers), at::ones_like(ids_TK)).narrow(1, 0, peers.count);
}

Tensor chunk_of_tokens(const HopTokens& tokens) {
  const Tensor chunk_T = at::empty({tokens.num_tokens()}, tokens.ids_TK.options());
  for (size_t c = 0; c + 1 < tokens.chunk_begin.size(); ++c) {
    const int64_t begin = tokens.chunk_begin[c];
    chunk_T.narrow(0, begin, tokens.chunk_begin[c + 1] - begin).fill_(static_cast<int64_t>(c));
  }
  return chunk_T;
}

// The sum before each element.
Tensor sum_before(const Tensor& x) { return x.cumsum(0) - x; }

}  // namespace

SortedRows sort_rows(const HopTokens& tokens, const PeersOfHop& peers, int64_t most_rows, int64_t room) {
  const int64_t t = tokens.num_tokens(), n = peers.count, messages = n * tokens.num_chunks();
  const auto options = tokens.ids_TK.options();
  const Tensor key = chunk_of_tokens(tokens).unsqueeze(1) * n + at::arange(n, options);
  // Without a row: after the last message.
  const Tensor message = at::where(choices_of_peers(tokens.ids_TK, peers) > 0, key, messages).reshape({-1});
  const auto [sorted, choices] = at::sort(message, /*stable=*/true, /*dim=*/0, /*descending=*/false);
  const Tensor counts = at::zeros({messages + 1}, options).scatter_add_(0, message, at::ones_like(message));
  const Tensor position = at::arange(t * n, options);
  const Tensor row = at::where(sorted < messages, position, -1);
  const Tensor row_of = at::empty({t * n}, options).scatter_(0, choices, row), offsets = sum_before(counts);
  if (room < 0) return {offsets, choices.narrow(0, 0, most_rows), row_of.view({t, n})};
  // Choices without a row go to one more row, which is cut off.
  const int64_t padded = messages * room;
  const Tensor spread = at::where(row_of < 0, padded, message * room + row_of - offsets.index_select(0, message));
  const Tensor choice_of_row = at::full({padded + 1}, -1, options).scatter_(0, spread, position).narrow(0, 0, padded);
  return {at::full({1}, padded, options), choice_of_row, at::where(row_of < 0, -1, spread).view({t, n})};
}

void count_rows(const HopTokens& tokens, const PeersOfHop& peers, const Tensor& counts) {
  const Tensor choices_Tn = choices_of_peers(tokens.ids_TK, peers), rows_Tn = (choices_Tn > 0).to(at::kLong);
  const Tensor to = counts.view({peers.count, tokens.num_chunks()});
  for (int64_t c = 0; c < tokens.num_chunks(); ++c) {
    const int64_t begin = tokens.chunk_begin[static_cast<size_t>(c)],
                  count = tokens.chunk_begin[static_cast<size_t>(c) + 1] - begin;
    to.select(1, c).copy_(rows_Tn.narrow(0, begin, count).sum(0) +
                          choices_Tn.narrow(0, begin, count).sum(0) * (int64_t{1} << 32));
  }
}

RowOrder order_rows(const Tensor& counts, int64_t peers, int64_t chunks, int64_t most_rows) {
  const Tensor rows = counts.remainder(int64_t{1} << 32);
  const Tensor peer_begins = sum_before(rows);
  const Tensor chunk_begins =
      sum_before(rows.view({peers, chunks}).t().reshape({-1})).view({chunks, peers}).t().reshape({-1});
  const Tensor row = at::arange(most_rows, counts.options());
  const Tensor message =
      at::searchsorted(rows.cumsum(0), row, /*out_int32=*/false, /*right=*/true).clamp_max(peers * chunks - 1);
  return {chunk_begins.index_select(0, message) + row - peer_begins.index_select(0, message),
          chunk_begins.narrow(0, 0, chunks)};
}

Tensor pack_choices(const Tensor& weights_RK, const Tensor& ids_RK) {
  return at::cat({weights_RK.contiguous().view(at::kByte), ids_RK.to(at::kInt).view(at::kByte)}, 1);
}

Tensor pack_choices(const Tensor& weights_TK, const Tensor& ids_TK, const SortedRows& rows, const Tensor& by_chunk) {
  Tensor choices = rows.choice_of_row;
  if (by_chunk.defined() && choices.numel() > 0)
    choices = choices.index_select(0, by_chunk.clamp(0, choices.numel() - 1));
  if (choices.numel() == 0) return pack_choices(weights_TK.narrow(0, 0, 0), ids_TK.narrow(0, 0, 0));
  const Tensor token = at::div(choices.clamp_min(0), rows.row_of.size(1), "floor");
  const Tensor is_padding = (choices < 0).unsqueeze(1);
  return pack_choices(at::where(is_padding, 0.0f, weights_TK.index_select(0, token)),
                      at::where(is_padding, -1, ids_TK.index_select(0, token)));
}

Unpacked unpack_choices(const Tensor& bytes, const Tensor& by_chunk) {
  const int64_t half = bytes.size(1) / 2;
  const Unpacked in_order{bytes.narrow(1, 0, half).contiguous().view(at::kFloat),
                          bytes.narrow(1, half, half).contiguous().view(at::kInt).to(at::kLong)};
  if (!by_chunk.defined()) return in_order;
  const Unpacked to{at::empty_like(in_order.weights_NK), at::empty_like(in_order.ids_NK)};
  to.weights_NK.index_copy_(0, by_chunk, in_order.weights_NK);
  to.ids_NK.index_copy_(0, by_chunk, in_order.ids_NK);
  return to;
}

void sum_rows(const Tensor& parts, const Tensor& row_of, int64_t first_row, const Tensor& out_TD) {
  if (parts.size(0) == 0) return void(out_TD.zero_());
  out_TD.copy_(device::tree_sum(row_of.size(1), [&](int64_t peer) {
    const Tensor row = row_of.select(1, peer);
    const Tensor part = parts.index_select(0, (row - first_row).clamp(0, parts.size(0) - 1)).to(at::kFloat);
    return at::where((row < 0).unsqueeze(1), 0.0f, part);
  }));
}

Tensor take_weight_gradients(const Tensor& rows, const HopTokens& tokens, const PeersOfHop& peers,
                             const Tensor& row_of) {
  if (rows.size(0) == 0) return at::zeros(tokens.ids_TK.sizes(), rows.options());
  const int64_t k = tokens.ids_TK.size(1);
  const Tensor peer = peer_of(tokens.ids_TK, peers);
  const Tensor row = row_of.gather(1, peer.clamp_max(peers.count - 1)).clamp_min(0);
  const Tensor at = (row * k + at::arange(k, row.options())).reshape({-1});
  const Tensor taken = rows.reshape({-1}).index_select(0, at).view(row.sizes()) + 0.0f;  // −0 becomes 0
  return at::where(peer < peers.count, taken, 0.0f);
}

}  // namespace athanor::ops::device_dispatch::without_kernels
