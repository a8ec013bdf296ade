#pragma once
// One hop of tokens to the peers that need them, and of their sums back. all_to_all is one hop, all_to_all_2d two.
//
// There are n peers; peer p owns experts [first + p·M, first + (p + 1)·M). A token with one or more of these among its
// choices sends one row to p; any other token sends none. Within a chunk, rows are ordered by peer, then position.
//
// On a device, the numbers of rows are counted and exchanged there, and the host fetches them once, when it first needs
// them to make tensors. Meanwhile the choices are packed.

#include <functional>
#include <optional>

#include "moe/dispatch_hop_rows.h"
#include "ops/transfer.h"

namespace athanor::moe {

/// Returns all of a rank's tokens, cut into chunks.
Tokens own_tokens(const DispatchInput& input);

/// Returns Received::choices_played of a played step; empty in others.
std::vector<int64_t> played_choices_of_chunks(const DispatchInput& input);

/// Returns the counts of a call's hop, which live as long as those of the call.
inline std::shared_ptr<RowCounts::OfHop> counts_of_hop(const DispatchInput& input, size_t hop) {
  return {input.counts, &input.counts->hops[hop]};
}

class Hop {
 public:
  /// Collective over the group, as all calls below: ranks make the hop, receive its choices, and then send chunks, in
  /// the same order on every rank. Only a call of the first group below waits for numbers of rows, once.
  /// @param peers  ascending ranks of the group, this one among them; each of them passes the same list.
  /// @param counts  those of an earlier hop of these tokens, which are then not exchanged; if empty, it is filled.
  /// @param most_choices  the most choices of these tokens that a peer owns; −1 if that is not known. If it is, numbers
  ///        are not exchanged: each message is padded to its most rows.
  /// @param learn_counts  sets `counts`, on the host, of which the tensor on the device has been set: they are then
  ///        neither counted nor exchanged here.
  Hop(const DispatchInput& input, std::vector<int> peers, Tokens tokens, int64_t first_expert, int64_t experts_per_peer,
      std::shared_ptr<RowCounts::OfHop> counts, int64_t most_choices, std::function<void()> learn_counts = {});

  size_t num_peers() const { return peers_.size(); }
  /// Returns what comes to this rank.
  const RowNumbers& come();
  int64_t num_received() { return come().chunk_begin.back(); }
  /// Returns how many tokens of a chunk come from peers[peer].
  int64_t received_from(size_t peer, int64_t chunk) { return come().of_peer[static_cast<size_t>(chunk)][peer]; }
  /// Returns the choices of the received tokens, chunk by chunk, within a chunk by peer. Waits at the first call.
  const Tokens& received();
  /// Returns HopRows::order_of_received. To be called after received().
  Tensor order_of_received() const { return rows_->order_of_received(); }

  /// Begins to send the chunk's rows of x_TD, which has the rows of all tokens, into the chunk's rows of the peers'
  /// x_ND, which has those of all received tokens.
  void begin_send(int64_t chunk, const Tensor& x_TD, const Tensor& x_ND);
  void finish_send(int64_t chunk);

  /// Begins to send the partial sums of the chunk's received tokens back.
  void begin_return(int64_t chunk, const Tensor& partial_nD);
  /// Writes HopRows::add_up of what came back.
  void finish_return(int64_t chunk, const Tensor& sum_TD);

  /// Begins to send the gradients of the weights of all received tokens back.
  void begin_return_weights(const Tensor& dweights_NK);
  /// Returns HopRows::weight_gradients of what came back.
  Tensor finish_return_weights();

 private:
  struct Flight {
    Tensor there, here;  // sent, and received
    comm::Pending over;
  };
  using Counts = std::vector<int64_t>;  // by peer

  static size_t chunk_at(int64_t chunk) { return static_cast<size_t>(chunk); }
  void begin_counts();
  void set_counts(const Tokens& tokens, int64_t room, int64_t most_choices);
  void learn_numbers();
  int64_t own_index() const;
  Flight exchange(const Tensor& rows, const Counts& there, const Counts& here, const Tensor& into);

  comm::Communicator& group_;
  bool is_queued_;
  std::vector<int> peers_;
  int64_t chunks_, k_;
  std::unique_ptr<HopRows> rows_;
  std::shared_ptr<RowCounts::OfHop> counts_;
  std::function<void()> learn_counts_;
  Flight counts_coming_;
  std::optional<ops::Fetch> fetched_counts_;
  Tensor played_counts_;                 // in a played step, where no counts arrive
  std::optional<RowNumbers> go_, come_;  // once they are known
  Tensor packed_choices_;
  Flight choices_, dweights_;
  Tokens received_;
  std::vector<Flight> sends_, returns_;
};

}  // namespace athanor::moe
