#pragma once
// What a layout sends in a step: by one rank, collective by collective, and by all of them, inside supernodes and
// between them: the table by which a mapping is chosen.

#include <string>
#include <vector>

#include "arch/layout.h"
#include "arch/memory.h"

namespace athanor {

/// What one rank sends over one of its groups, to itself not counted, in all calls of a kind of a step.
struct RankTraffic {
  std::string what;        ///< "dense gradients", "tokens", ...: rows of the table below
  std::string collective;  ///< "all_reduce", ...: comm::Traffic::bytes_of
  GroupKind group;
  int peer = -1;  ///< of a send: its index in the group
  double calls = 0, bytes = 0;
};

/// n: the size of the group. For each parameter group (arch/holding.h), b = held elements · 2 or 4 bytes
/// (train.reduce_dtype), w = held elements · 2 or 4 bytes (train.dtype):
///   gradients  over kData (experts: kExpertData) a reduce-scatter, b(n−1)/n, then what the sharding adds: none instead
///              an all-reduce, 2b(n−1)/n; optimizer an all-gather of dense parts over kExpert, b(E−1)/D; hierarchical
///              an all-reduce of b/shard over kReplicate. Then, of what a rank owns, beside it: partial, key_value,
///              tied an all-reduce; replicated a broadcast
///   weights    an all-gather over those that share the state, w(n−1)/n; none: 0
/// In a step's microbatches, A = N·hidden·2 or 4 bytes being the stream of a microbatch (train.dtype):
///   layers     over kTensor, for attention and feed-forward of each layer, an all-reduce of A in forward and one in
///              backward; sequence_parallel: an all-gather and a reduce-scatter in each direction. Recompute layer
///              sends a forward again; of attention, moe or norm sequence_parallel gathers again. OLMoE's QK-norm: 8N
///              in forward, in backward, and again; a sparse layer: its router's weights' gradient, 4Nk in backward
///   vocabulary over kTensor the same once for the embedding (forward) and once for the head (backward), and 12 bytes
///              for each token of the loss
///   stages     over kPipeline A / t to the next stage and back for each boundary (t: tensor under sequence_parallel)
///   tokens     over kExpert for each sparse layer in forward: S rows of A/N there and S back, S_k = 8k bytes of
///   choices
///              each; again in backward, with 4k of weights' gradients; forward once more under recompute moe or layer.
///              S = N·p to each other rank, p = 1 − C(N − N/E, k) / C(N, k) the probability that it has one of the
///              token's experts if these are drawn evenly; dispatch allgather: all N; 2d and auto count as all_to_all
///   balance    over kBalance 4 or 8 bytes of each choice; losses: what is shown of a step, over kPipeline and kData
std::vector<RankTraffic> count_rank_traffic(const RunConfig& config, const Layout& layout, int rank, int64_t seq_len);

/// The share of a line's bytes that stays in the rank's supernode.
double share_inside(const RankTraffic& line, const std::vector<int>& group, int rank,
                    const std::vector<int>& supernode);

/// Bytes that all ranks together send in a step.
struct StepTraffic {
  std::string what;
  double inside = 0, outside = 0;
};

/// The supernode of each rank as the configuration says; all in one where it does not.
std::vector<int> supernodes_of(const TopologyConfig& topology, int world_size);

/// count_rank_traffic, summed over all ranks, a line for each `what`.
std::vector<StepTraffic> count_step_traffic(const RunConfig& config, const Layout& layout, int64_t seq_len,
                                            const std::vector<int>& supernode);

/// That a token with k of `experts` experts, drawn evenly, has one of `owned` ones.
double probability_of_any(int64_t experts, int64_t owned, int64_t k);

}  // namespace athanor
