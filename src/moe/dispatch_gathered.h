#pragma once
// Where an all-gather of tokens puts them. Each rank's tokens are cut into chunks, and a chunk has room for the most
// tokens that a rank has in it. Tokens arrive chunk after chunk; within a chunk by source rank, then position. Choices
// are gathered for all chunks at once: by source rank, then chunk.

#include <algorithm>
#include <numeric>
#include <vector>

#include "moe/dispatch_exchange.h"

namespace athanor::moe {

class GatheredTokens {
 public:
  GatheredTokens() = default;
  /// @param tokens  the number of tokens of each rank.
  GatheredTokens(std::vector<int64_t> tokens, int64_t chunks) : tokens_(std::move(tokens)), chunks_(chunks) {
    for (int64_t c = 0; c < chunks; ++c) {
      int64_t most = 0;
      for (int64_t s = 0; s < num_ranks(); ++s) most = std::max(most, count(s, c));
      padded_.push_back(padded_.back() + most);
    }
  }

  int64_t num_ranks() const { return static_cast<int64_t>(tokens_.size()); }
  /// Return a rank's first token of a chunk, and the number of its tokens there.
  int64_t begin(int64_t rank, int64_t c) const { return moe::chunk_begin(tokens_[at(rank)], chunks_, c); }
  int64_t count(int64_t rank, int64_t c) const { return begin(rank, c + 1) - begin(rank, c); }

  // With padding.
  int64_t of_rank() const { return padded_.back(); }                           ///< tokens of each rank
  int64_t padded(int64_t c) const { return padded_[at(c)]; }                   ///< a rank's first token of a chunk
  int64_t padding(int64_t c) const { return padded_[at(c + 1)] - padded(c); }  ///< tokens of each rank in a chunk
  int64_t num_tokens() const { return num_ranks() * of_rank(); }               ///< tokens of all ranks
  int64_t chunk_begin(int64_t c) const { return num_ranks() * padded(c); }     ///< first of them in a chunk
  /// Returns where the tokens of a rank's chunk arrive.
  int64_t arrival(int64_t rank, int64_t c) const { return chunk_begin(c) + rank * padding(c); }
  /// Returns whether there is padding.
  bool is_padded() const { return num_tokens() != std::accumulate(tokens_.begin(), tokens_.end(), int64_t{0}); }

 private:
  static size_t at(int64_t i) { return static_cast<size_t>(i); }
  std::vector<int64_t> tokens_, padded_ = {0};
  int64_t chunks_ = 0;
};

/// What the exchanges by allgather on the host and on a device share: where tokens are, and how they are sent.
class GatheredExchange : public Exchange {
 public:
  explicit GatheredExchange(const DispatchInput& input);

  int64_t num_chunks() const override { return chunks_; }
  int64_t num_received() override { return all_.num_tokens(); }
  void begin_send(int64_t chunk, const Tensor& x_TD, const Tensor& x_ND) override;
  void finish_send(int64_t chunk) override { sends_[at(chunk)].wait(); }

 protected:
  static size_t at(int64_t i) { return static_cast<size_t>(i); }
  int64_t own_begin(int64_t c) const { return all_.begin(group_.rank(), c); }
  int64_t own_count(int64_t c) const { return all_.count(group_.rank(), c); }
  /// Begins to gather the choices of this rank's tokens, with padding, [of_rank(), choice_bytes(k)].
  void begin_choices(const Tensor& own_choices);

  comm::Communicator& group_;
  int64_t chunks_, tokens_, k_;
  GatheredTokens all_;
  Tensor own_choices_, all_choices_;
  comm::Pending choices_coming_;
  Received received_;

 private:
  std::vector<comm::Pending> sends_;
};

}  // namespace athanor::moe
