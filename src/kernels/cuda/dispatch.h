#pragma once
// The order in which tokens are sent to the ranks of their experts, and the sums of what comes back, on a device
// (moe/dispatch_hop.h). The host learns nothing from these calls: counts stay on the device until it fetches them.
//
// There are n peers, and the tokens are cut into C chunks. A token sends one row to each peer that owns one of its
// experts. Rows are counted "by chunk" (chunk, then peer, then token) or "by peer" (peer, then chunk, then token). All
// pointers are in the stream's memory.

#include <cstdint>

#include "kernels/cuda/stream.h"
#include "kernels/element.h"

namespace athanor::kernels::cuda {

/// Peer p owns experts [first_expert + p · experts_per_peer, first_expert + (p + 1) · experts_per_peer).
struct PeersOfHop {
  int64_t first_expert, experts_per_peer, count;

  /// Returns the owner of an expert; −1 if it is no peer.
  ATHANOR_INLINE int64_t peer_of(int64_t expert) const {
    if (expert < first_expert) return -1;
    const int64_t peer = (expert - first_expert) / experts_per_peer;
    return peer < count ? peer : -1;
  }
};

/// The choices of tokens, and the chunks that these are cut into.
struct TokensOfHop {
  const int64_t* ids;  ///< [tokens, k]
  int64_t tokens, k, chunks;
  const int64_t* chunk_begin;  ///< first token of each chunk; null: chunk c begins with token tokens · c / chunks
};

/// Sets keys[t, p] to chunk · n + p if token t sends a row to p, else to −1; keys [tokens, n]. So sort_choices of the
/// keys gives the rows by chunk.
void key_rows(const Stream& stream, const TokensOfHop& tokens, const PeersOfHop& peers, int64_t* keys);

/// Gives each peer `room` rows in each chunk: the row by chunk of a message becomes message · room plus its place in
/// the message, with messages by chunk. Changes row_of; sets choice_of_row, which must be full of −1, for rows with a
/// token. A message of more rows than there is room for writes nothing for those: to be excluded by the caller.
/// @param keys     of key_rows.
/// @param offsets  of sort_choices of the keys.
void spread_rows(const Stream& stream, const int64_t* keys, const int64_t* offsets, int64_t tokens, int64_t peers,
                 int64_t room, int64_t* row_of, int64_t* choice_of_row);

/// A number of rows, and of the choices that they are for, in one word: both are below 2³¹.
ATHANOR_INLINE int64_t count_of(int64_t rows, int64_t choices) { return rows + (choices << 32); }
ATHANOR_INLINE int64_t rows_of_count(int64_t count) { return count & 0xFFFFFFFF; }
ATHANOR_INLINE int64_t choices_of_count(int64_t count) { return count >> 32; }

/// Sets counts[p, c] to the count of what chunk c sends to p.
void count_rows(const Stream& stream, const TokensOfHop& tokens, const PeersOfHop& peers, int64_t* counts);

/// Sets by_chunk[i], for every row i by peer, to its index by chunk.
/// @param counts     [peers, chunks], of rows that go to peers or that come from them.
/// @param begins     [2 · peers · chunks + 1]; the first `chunks` of them become the first row of each chunk.
/// @param most_rows  no less than the rows; elements after the last row are not written.
void order_rows(const Stream& stream, const int64_t* counts, int64_t peers, int64_t chunks, int64_t* begins,
                int64_t* by_chunk, int64_t most_rows);

/// The rows that are packed for sending.
struct RowsToPack {
  const int64_t* choice_of_row = nullptr;  ///< as sort_choices of the keys leaves it; null: row r is token r
  int64_t peers = 1;
  const int64_t* by_chunk = nullptr;  ///< from order_rows; null: both orders are the same
  const int64_t* num_rows = nullptr;  ///< null: most_rows
  int64_t most_rows = 0;
};
/// Writes the choices of each row's token, by peer: k weights (fp32), then k expert ids (int32); 0 and −1 for a row
/// without a token.
void pack_choices(const Stream& stream, const float* weights, const int64_t* ids, const RowsToPack& rows, int64_t k,
                  int32_t* packed);
/// Reads choices that arrived by peer, into the order by chunk.
/// @param by_chunk  null: both orders are the same.
void unpack_choices(const Stream& stream, const int32_t* packed, const int64_t* by_chunk, int64_t rows, int64_t k,
                    float* weights, int64_t* ids);

/// The rows that came back for tokens.
struct PartialRows {
  const int64_t* row_of = nullptr;  ///< [tokens, n]: a token's row, or −1; null: token t has row p · rows_of_peer + t
  int64_t first_row = 0;            ///< the row that `rows` begins with
  int64_t rows_of_peer = 0;
};
/// kernels::sum_partials (kernels/partial_sums.h) over n peers for `tokens` tokens, with the same bits.
template <class From, class To>
void sum_partials(const Stream& stream, const From* rows, const PartialRows& where, int64_t n, To* out, int64_t tokens,
                  int64_t width);

/// Sets out[t, j] to the gradient of the weight of choice j, from the row of the peer that owns its expert; 0 if no
/// peer does.
/// @param rows  [·, k], by chunk.
void take_weight_gradients(const Stream& stream, const float* rows, const TokensOfHop& tokens, const PeersOfHop& peers,
                           const int64_t* row_of, float* out);

}  // namespace athanor::kernels::cuda
