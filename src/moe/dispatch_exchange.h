#pragma once
// What the kinds of dispatch have in common: an Exchange is one layer's tokens on their way, there and back, in forward
// and once more in backward. All of its calls are collective, and in the same order on every rank.

#include <algorithm>
#include <memory>
#include <vector>

#include "moe/dispatch.h"

namespace athanor::moe {

/// Where a chunk's tokens begin among `tokens`.
inline int64_t chunk_begin(int64_t tokens, int64_t chunks, int64_t chunk) { return tokens * chunk / chunks; }

/// Tokens that came to this rank, chunk after chunk. N of them.
struct Received {
  /// Tokens that stood together at their source, and do here.
  struct Run {
    int64_t begin, count;  ///< of [0, N)
  };
  std::vector<int64_t> chunk_begin;  ///< of each chunk, and N
  Tensor weights_NK, ids_NK;         ///< fp32, int64; in the order of arrival
  std::vector<Run> canonical;        ///< all tokens by source rank, then position

  int64_t num_tokens() const { return chunk_begin.back(); }
  /// Within each chunk, and between them if there is one.
  bool arrived_in_order() const { return std::ranges::is_sorted(canonical, {}, &Run::begin); }
  Tensor chunk(const Tensor& x_N, int64_t c) const {
    const auto at = static_cast<size_t>(c);
    return x_N.narrow(0, chunk_begin[at], chunk_begin[at + 1] - chunk_begin[at]);
  }
};

/// Sends and returns: each is begun, carried on (second hops; finish does it where nobody did) and finished, chunk by
/// chunk in order. The tensors of one that is begun belong to it until it is finished.
class Exchange {
 public:
  virtual ~Exchange() = default;
  virtual int64_t num_chunks() const = 0;

  /// The sources' choices. Waits for them at the first call, which comes before any carry_on or finish.
  virtual const Received& received() = 0;
  /// Tokens that will have come: known at once.
  virtual int64_t num_received() const = 0;

  /// Rows of x_TD (tokens, or their outputs' gradients) to the ranks of their experts: x_ND there, [N, D].
  virtual void begin_send(int64_t chunk, const Tensor& x_TD, const Tensor& x_ND) = 0;
  virtual void carry_on_send(int64_t /*chunk*/) {}
  virtual void finish_send(int64_t chunk) = 0;

  /// Partial sums of a chunk's received tokens back to their sources: their tree in the chunk's rows of sum_TD.
  virtual void begin_return(int64_t chunk, const Tensor& partial_nD) = 0;
  virtual void carry_on_return(int64_t /*chunk*/) {}
  virtual void finish_return(int64_t chunk, const Tensor& sum_TD) = 0;

  /// Gradients of the choices' weights, 0 where a choice is not of this rank.
  virtual void begin_return_weights(const Tensor& dweights_NK) = 0;
  virtual Tensor finish_return_weights() = 0;
};

/// This rank's choices, and how they travel.
struct Choosing {
  comm::Communicator& group;
  const DispatchOptions& options;
  Tensor weights_TK, ids_TK;  ///< contiguous
  int64_t experts_per_rank;

  int64_t num_tokens() const { return ids_TK.size(0); }
  int64_t k() const { return ids_TK.size(1); }
};

/// Algorithm 1. Calls: an all-gather of token counts, one of choices; for each chunk an all-gather and a
/// reduce-scatter; in backward the same for each chunk and a reduce-scatter of weights' gradients. With P = Σ over
/// chunks of the most tokens that a rank has in it, a rank sends, in (E−1)-fold, 8 bytes and P · 8K bytes of choices; P
/// · D elements forward there and P · D back, the same in backward, and P · 4K bytes of weights' gradients.
std::unique_ptr<Exchange> exchange_by_allgather(const Choosing& choosing);

/// Calls: an all-to-all of counts (8 bytes for each chunk to every other rank: all that a rank without experts of ours
/// hears), an uneven one of choices; for each chunk one there and one back; in backward the same for each chunk and one
/// of weights' gradients. To rank p go S_p · 8K bytes of choices and S_p · D elements, where S_p of our tokens have an
/// expert there; from it to us come as many elements; in backward the same elements again, and S_p · 4K bytes of
/// weights' gradients.
std::unique_ptr<Exchange> exchange_by_all_to_all(const Choosing& choosing);

/// The calls of two all_to_all: the first among the ranks that stand at the same place of every node, the second among
/// those of a node, with 8 (K + 1) bytes of choices there and 4 (K + 1) of weights' gradients. Of S_o tokens with an
/// expert in node o, S_o · D elements cross to it, and S_o · D fp32 come back.
std::unique_ptr<Exchange> exchange_by_all_to_all_2d(const Choosing& choosing);

std::unique_ptr<Exchange> make_exchange(const Choosing& choosing);

}  // namespace athanor::moe
