#pragma once
// What a hop does with the rows of tokens: which are sent, how they are packed, and how what comes back is added up.
// DispatchForm makes the one for the host or for devices.

#include <memory>
#include <vector>

#include "kernels/cuda/dispatch.h"
#include "moe/dispatch_exchange.h"

namespace athanor::moe {

using kernels::cuda::PeersOfHop;

/// A rank's tokens before a hop, chunk after chunk.
struct Tokens {
  std::vector<int64_t> chunk_begin;  ///< first token of each chunk, then the number of tokens
  Tensor weights_TK, ids_TK;         ///< fp32, int64; contiguous
  Tensor begins_there = {};          ///< on a device: chunk_begin there; undefined if the chunks are equal parts

  int64_t num_tokens() const { return chunk_begin.back(); }
  int64_t num_chunks() const { return static_cast<int64_t>(chunk_begin.size()) - 1; }
};

/// How many rows one rank sends or receives in a hop.
struct RowNumbers {
  std::vector<std::vector<int64_t>> of_peer;  ///< for each chunk: to or from each peer
  std::vector<int64_t> choices;               ///< for each chunk: the choices that they are for; 0 on the host
  std::vector<int64_t> chunk_begin = {0};     ///< the rows of the chunks before it, and of all chunks

  RowNumbers() = default;
  /// @param counts  int64 [peers · chunks] of the host (kernels::cuda::count_of).
  RowNumbers(const Tensor& counts, int64_t peers, int64_t chunks);
  /// Returns the rows of each peer in all chunks.
  std::vector<int64_t> of_all_chunks() const;
};

/// Rows are by chunk, except the choices and the gradients of their weights, which are sent for all chunks at once: by
/// peer.
class HopRows {
 public:
  virtual ~HopRows() = default;

  /// Writes the counts of what is sent into int64 [peers · chunks], on the tokens' device.
  virtual void count(const Tensor& counts) = 0;
  /// Returns the choices of the rows to send; what is after the last row has no meaning.
  /// @param counts  of what is sent.
  virtual Tensor pack_choices(const Tensor& counts) = 0;
  /// Gives the numbers of rows, once the host knows them. To be called before everything below.
  /// @param counts  [2, peers · chunks], on the tokens' device: of rows to peers, and from them.
  virtual void set_numbers(const RowNumbers& go, const RowNumbers& come, const Tensor& counts) = 0;

  /// Returns the received tokens, by chunk.
  virtual Tokens unpack_choices(const Tensor& bytes) = 0;

  /// Returns the place by chunk of each received row by peer; undefined on the host, and if it is the same.
  virtual Tensor order_of_received() const { return {}; }
  /// Returns the chunk's rows of x_TD.
  virtual Tensor gather(int64_t chunk, const Tensor& x_TD) = 0;
  /// Writes the tree sums over peers of the chunk's rows, rounded to sum_TD's type, into the chunk's rows of sum_TD; 0
  /// for a token without a row.
  virtual void add_up(int64_t chunk, const Tensor& rows, const Tensor& sum_TD) = 0;
  /// Returns the received tokens' gradients of weights by peer.
  virtual Tensor by_peer(const Tensor& dweights_NK) = 0;
  /// Returns [T, K] from the rows that came back, by peer: each choice's gradient from the peer that owns its expert, 0
  /// if no peer does.
  virtual Tensor weight_gradients(const Tensor& rows) = 0;
};

}  // namespace athanor::moe
