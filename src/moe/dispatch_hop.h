#pragma once
// One hop of tokens to the peers that need them, and of their sums back. all_to_all is one hop, all_to_all_2d two.
//
// There are n peers; peer p owns experts [first + p·M, first + (p + 1)·M). A token with one or more of these among its
// choices sends one row to p; any other token sends none. Within a chunk, rows are ordered by peer, then position.

#include <span>

#include "moe/dispatch_exchange.h"

namespace athanor::moe {

/// A rank's tokens before a hop, chunk after chunk.
struct Tokens {
  std::vector<int64_t> chunk_begin;  ///< first token of each chunk, then the number of tokens
  Tensor weights_TK, ids_TK;         ///< fp32, int64; contiguous
};

/// Returns all of a rank's tokens, cut into chunks.
Tokens own_tokens(const DispatchInput& input);

class Hop {
 public:
  /// Collective over the group, as all calls below: ranks make the hop, receive its choices, and then send chunks, in
  /// the same order on every rank.
  /// @param peers  ascending ranks of the group, this one among them; each of them passes the same list.
  /// @param counts  if defined, the counts of an earlier hop of these tokens, which are then not exchanged; else set.
  Hop(comm::Communicator& group, std::vector<int> peers, Tokens tokens, int64_t first_expert, int64_t experts_per_peer,
      RowCounts::OfHop& counts);

  size_t num_peers() const { return peers_.size(); }
  /// Return how many tokens come to this rank, and for each chunk how many came in the chunks before it.
  int64_t num_received() const { return come_begin_.back(); }
  const std::vector<int64_t>& received_chunk_begin() const { return come_begin_; }
  /// Returns how many tokens of a chunk come from peers[peer].
  int64_t received_from(size_t peer, int64_t chunk) const { return come_[chunk_at(chunk)][peer]; }
  /// Returns the choices of the received tokens, chunk by chunk, within a chunk by peer. Waits at the first call.
  const Tokens& received();

  /// Begins to send the chunk's rows of x_TD, which has the rows of all tokens, into the chunk's rows of the peers'
  /// x_ND, which has those of all received tokens.
  void begin_send(int64_t chunk, const Tensor& x_TD, const Tensor& x_ND);
  void finish_send(int64_t chunk);

  /// Begins to send the partial sums of the chunk's received tokens back.
  void begin_return(int64_t chunk, const Tensor& partial_nD);
  /// Writes the tree sum over peers, rounded to sum_TD's type, into the chunk's rows of sum_TD; 0 for a token without a
  /// row.
  void finish_return(int64_t chunk, const Tensor& sum_TD);

  /// Begins to send the gradients of the weights of all received tokens back.
  void begin_return_weights(const Tensor& dweights_NK);
  /// Returns [T, K]: each choice's gradient from the peer that owns its expert, 0 if no peer does.
  Tensor finish_return_weights();

 private:
  struct Flight {
    Tensor there, here;  // sent, and received
    comm::Pending over;
  };
  using Counts = std::vector<int64_t>;  // by peer

  static size_t chunk_at(int64_t chunk) { return static_cast<size_t>(chunk); }
  int64_t num_chunks() const { return static_cast<int64_t>(tokens_.chunk_begin.size()) - 1; }
  int64_t peer_of(int64_t id) const;
  void plan();
  void exchange_counts(RowCounts::OfHop& counts);
  void read_counts(const RowCounts::OfHop& counts);
  void begin_choices();
  Counts total(const std::vector<Counts>& counts) const;
  Flight exchange(const Tensor& rows, const Counts& there, const Counts& here, const Tensor& into);

  comm::Communicator& group_;
  std::vector<int> peers_;
  Tokens tokens_;
  int64_t first_expert_, experts_per_peer_;
  std::vector<std::vector<int64_t>> rows_;  // for each chunk: the token of each row that is sent
  std::vector<Counts> go_, come_;           // for each chunk: rows to and from each peer
  std::vector<int64_t> come_begin_;         // where each chunk begins among the received, and their number
  std::vector<int32_t> row_of_;             // [T, n]: a token's row in its chunk, or −1
  Flight choices_, dweights_;
  Tokens received_;
  std::vector<Flight> sends_, returns_;
};

}  // namespace athanor::moe
