#pragma once
// What dispatch computes on a device, with our kernels or, without them, in torch ops. The host waits for nothing.
//
// Rows, chunks, peers and the two orders of rows are those of kernels/cuda/dispatch.h.

#include <vector>

#include "kernels/cuda/dispatch.h"
#include "ops/tensor.h"

namespace athanor::ops::device_dispatch {

using kernels::cuda::PeersOfHop;

/// The tokens that a hop sends, on a device.
struct HopTokens {
  Tensor ids_TK;                     ///< int64
  std::vector<int64_t> chunk_begin;  ///< first token of each chunk, then the number of tokens
  Tensor begins_there = {};          ///< the same on the device; undefined if the chunks are equal parts

  int64_t num_tokens() const { return ids_TK.size(0); }
  int64_t num_chunks() const { return static_cast<int64_t>(chunk_begin.size()) - 1; }
};

/// The rows of a hop, by chunk: token t · n + p for the row of token t that goes to peer p. There is memory for the
/// most rows that there can be.
struct SortedRows {
  Tensor offsets;        ///< int64; the last element is the number of rows
  Tensor choice_of_row;  ///< int64 [most rows]
  Tensor row_of;         ///< int64 [T, n], or −1
};
/// @param room  the rows of each message, of which those after its last token have a choice_of_row of −1; −1: no
/// padding.
SortedRows sort_rows(const HopTokens& tokens, const PeersOfHop& peers, int64_t room = -1);

/// Writes the counts (kernels::cuda::count_of) of what goes to each peer in each chunk, int64 [n · chunks].
void count_rows(const HopTokens& tokens, const PeersOfHop& peers, const Tensor& counts);

/// The index by chunk of each row by peer.
struct RowOrder {
  Tensor by_chunk;  ///< int64 [most rows]; only as many as there are rows are set
  Tensor begins;    ///< int64 [chunks]: the first row of each chunk
};
RowOrder order_rows(const Tensor& counts, int64_t peers, int64_t chunks, int64_t most_rows);

/// The bytes in which a token's K choices are sent: its weights (fp32), then its expert ids (int32).
inline int64_t choice_bytes(int64_t k) { return 8 * k; }
/// Returns the choices of all tokens.
Tensor pack_choices(const Tensor& weights_TK, const Tensor& ids_TK);
/// Returns the choices of each row's token, by peer; [most rows, bytes].
/// @param by_chunk  of order_rows; undefined if there is one chunk.
Tensor pack_choices(const Tensor& weights_TK, const Tensor& ids_TK, const SortedRows& rows, const Tensor& by_chunk);
struct Unpacked {
  Tensor weights_NK, ids_NK;
};
/// Reads choices; row r goes to row by_chunk[r], or to r if that is undefined.
Unpacked unpack_choices(const Tensor& bytes, const Tensor& by_chunk);

/// Returns the rows [first, first + count) by chunk of their tokens.
Tensor gather_rows(const Tensor& x_TD, const SortedRows& rows, int64_t first, int64_t count);

/// Sets out_TD to the tree sums over n peers. `parts` has the rows by chunk from `first_row` on.
/// @param row_of  [T, n] of these tokens, or −1.
void sum_rows(const Tensor& parts, const Tensor& row_of, int64_t first_row, const Tensor& out_TD);

/// Returns the gradients of the weights of the tokens' choices, [T, K].
/// @param rows  [·, K], by chunk.
Tensor take_weight_gradients(const Tensor& rows, const HopTokens& tokens, const PeersOfHop& peers,
                             const Tensor& row_of);

}  // namespace athanor::ops::device_dispatch
