#pragma once
// The interface that the kinds of dispatch share. An Exchange sends one layer's tokens to their experts and returns the
// results, in forward and once more in backward. All of its calls are collective, and in the same order on every rank.

#include <algorithm>
#include <memory>
#include <numeric>
#include <vector>

#include "moe/dispatch.h"

namespace athanor::moe {

/// Returns the first token of a chunk among `tokens`.
inline int64_t chunk_begin(int64_t tokens, int64_t chunks, int64_t chunk) { return tokens * chunk / chunks; }

/// The N tokens that come to this rank, chunk after chunk. With allgather, padding is among them: it chooses no expert
/// (ids of −1).
struct Received {
  /// Tokens that are contiguous both at their source and here.
  struct Run {
    int64_t begin, count;  ///< a range of [0, N)
  };
  std::vector<int64_t> chunk_begin;  ///< first of the N tokens of each chunk, then N
  Tensor weights_NK, ids_NK;         ///< fp32, int64; in the order of arrival
  std::vector<Run> canonical;        ///< all tokens except padding, by source rank, then position there
  /// On a device, in place of `canonical`: int64, the places of all tokens in that order, there; padding may be among
  /// them. Undefined if they arrived in that order.
  Tensor arrival_N = {};
  /// On a device, of each chunk: the most choices of our experts. Empty if they are not known.
  std::vector<int64_t> most_choices = {};
  /// In a played step, of each chunk: the choices of our experts. Empty: their share of all choices.
  std::vector<int64_t> choices_played = {};

  /// Return the number in a chunk, or in all; −1 if it is not given.
  int64_t played_choices(int64_t c) const {
    return choices_played.empty() ? -1 : choices_played[static_cast<size_t>(c)];
  }
  int64_t played_choices() const {
    return choices_played.empty() ? -1 : std::accumulate(choices_played.begin(), choices_played.end(), int64_t{0});
  }

  int64_t num_tokens() const { return chunk_begin.back(); }
  /// True if the tokens arrived in canonical order, within each chunk and between chunks.
  bool arrived_in_order() const { return !arrival_N.defined() && std::ranges::is_sorted(canonical, {}, &Run::begin); }
  Tensor chunk(const Tensor& x_N, int64_t c) const {
    const auto at = static_cast<size_t>(c);
    return x_N.narrow(0, chunk_begin[at], chunk_begin[at + 1] - chunk_begin[at]);
  }
};

/// One exchange serves one call of Dispatch::experts: forward sends tokens and returns outputs, backward sends the
/// gradients of outputs and returns those of tokens. Each send and each return is begun, advanced (to the second hop;
/// finish does it if advance was not called) and finished, chunk by chunk in order. The tensors passed to begin must
/// not be used until finish returns.
class Exchange {
 public:
  virtual ~Exchange() = default;
  virtual int64_t num_chunks() const = 0;

  /// Returns the order of the tokens that come to this rank, and their choices. Waits for the choices at the first
  /// call, which comes before any advance or finish.
  virtual const Received& received() = 0;
  /// Returns N. On a device, all_to_all and all_to_all_2d wait for it at the first call, unless counts were given.
  virtual int64_t num_received() = 0;

  /// Sends rows of x_TD (tokens, or the gradients of their outputs) to the ranks of their experts, which receive them
  /// in x_ND [N, D].
  virtual void begin_send(int64_t chunk, const Tensor& x_TD, const Tensor& x_ND) = 0;
  virtual void advance_send(int64_t /*chunk*/) {}
  virtual void finish_send(int64_t chunk) = 0;

  /// Returns the partial sums of a chunk's received tokens to their sources, which get the tree sum over ranks in the
  /// chunk's rows of sum_TD.
  virtual void begin_return(int64_t chunk, const Tensor& partial_nD) = 0;
  virtual void advance_return(int64_t /*chunk*/) {}
  virtual void finish_return(int64_t chunk, const Tensor& sum_TD) = 0;

  /// Returns the gradients of the choices' weights to their sources; finish returns [T, K] for this rank's own tokens.
  /// @param dweights_NK  fp32; 0 if a choice's expert is not on this rank.
  virtual void begin_return_weights(const Tensor& dweights_NK) = 0;
  virtual Tensor finish_return_weights() = 0;
};

class DispatchForm;

/// This rank's choices, and the options for sending them. All tensors are on the device of the choices.
struct DispatchInput {
  comm::Communicator& group;
  const DispatchOptions& options;
  Tensor weights_TK, ids_TK;  ///< fp32, int64; contiguous
  int64_t experts_per_rank;
  const DispatchForm& form;
  KnownTokens known = {};
  /// From `known`, or new.
  std::shared_ptr<RowCounts> counts = known.counts ? known.counts : std::make_shared<RowCounts>();

  /// Returns the most choices that `experts` experts get from `ranks` ranks; −1 if that is not known.
  int64_t most_choices(int64_t experts, int64_t ranks) const;

  int64_t num_tokens() const { return ids_TK.size(0); }
  int64_t k() const { return ids_TK.size(1); }
};

/// Makes an Exchange that sends a token only to the ranks of its experts. Calls: unless they are known, an all-to-all
/// of counts (8 bytes for each chunk to every other rank: a rank without an expert of ours receives nothing else); an
/// uneven one of choices; for each chunk one to the experts and one back; in backward the same for each chunk, and one
/// of the weights' gradients. Let S_p of our tokens have an expert on rank p. Then S_p · 8K bytes of choices and S_p ·
/// D elements go to rank p, and as many elements come back; in backward the same elements again, and S_p · 4K bytes of
/// weights' gradients.
std::unique_ptr<Exchange> exchange_by_all_to_all(const DispatchInput& input);

/// Makes an Exchange in two hops. Its calls are those of two exchanges by all-to-all. The first is among the ranks at
/// the same place of every node, the second among the ranks of a node. In the second, choices are 8 (K + 1) bytes and
/// weights' gradients 4 (K + 1). If S_o tokens have an expert in node o, S_o · D elements go to the node, and S_o · D
/// fp32 come back. On a device the counts of both hops are exchanged before the first: 8 bytes for each chunk, the node
/// and each of its ranks.
std::unique_ptr<Exchange> exchange_by_all_to_all_2d(const DispatchInput& input);

/// Makes an Exchange of the kind in input.options, which may not be kAuto.
std::unique_ptr<Exchange> make_exchange(const DispatchInput& input);

}  // namespace athanor::moe
