#pragma once
// The numbers of rows and choices that a dispatch reads on the host, for a played step (ops/played.h): those that are
// expected if each expert gets its share, and a token's choices are different experts.

#include <cstdint>
#include <vector>

#include "kernels/cuda/dispatch.h"
#include "ops/tensor.h"

namespace athanor::moe {

/// A range of the model's experts.
struct ExpertRange {
  int64_t first, count;
};

/// Returns the experts of a hop's peer, and those of all its peers.
ExpertRange experts_of_peer(const kernels::cuda::PeersOfHop& peers, int64_t peer);
ExpertRange experts_of_peers(const kernels::cuda::PeersOfHop& peers);

/// Returns the choices of `tokens` tokens that are among these experts.
int64_t played_choices(int64_t tokens, ExpertRange experts);

/// Returns how many tokens have a choice among `experts`, of those that have one among `known`, a range around it. If
/// tokens take experts in turn, they are the first ones of a microbatch.
int64_t played_tokens(int64_t tokens, ExpertRange experts, ExpertRange known);

/// Returns the counts of a hop to peers, and from them, which have as many tokens: int64 [2, peers · chunks] of the
/// host (kernels::cuda::count_of).
/// @param chunk_begin  the first token of each chunk, then the number of tokens; all have a choice of a peer's expert.
/// @param own          the index of this rank among the peers.
Tensor played_counts(const std::vector<int64_t>& chunk_begin, const kernels::cuda::PeersOfHop& peers, int64_t own);

}  // namespace athanor::moe
