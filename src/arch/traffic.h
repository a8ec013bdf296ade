#pragma once
// What a layout sends in a step, inside supernodes and between them: the table by which a mapping is chosen.

#include <string>
#include <vector>

#include "arch/layout.h"
#include "arch/memory.h"

namespace athanor {

/// Bytes that all ranks together send in a step, to themselves not counted.
struct StepTraffic {
  std::string what;  ///< "dense gradients", "expert gradients", "dense weights", "expert weights", "tokens"
  double inside = 0, outside = 0;
};

/// The supernode of each rank as the configuration says; all in one where it does not.
std::vector<int> supernodes_of(const TopologyConfig& topology, int world_size);

/// Over the layout's groups, each pair of ranks as often as the collective has it send:
///   gradients  reduce-scatter b/n to each of the others, b = held elements · 2 or 4 bytes (train.reduce_dtype), then
///              what the sharding adds: none an all-gather of b/n; optimizer an all-gather of b/D over the expert
///              group; hierarchical an all-reduce of b/shard over the replicas
///   weights    all-gather, b = held elements · 2 or 4 bytes (train.dtype), over those that share the state; none: 0
///   tokens     4 · hidden · bytes for each token and sparse layer to each other rank of the expert group (there and
///              back, in forward and backward), times the probability that it has one of the token's experts if these
///              are drawn evenly, 1 − C(N − N/E, k) / C(N, k); dispatch allgather: always. Ids and weights, 12 bytes a
///              choice, are left out, and so is what recomputation sends again.
/// @param held  of each rank. @param seq_len  tokens of a sequence.
std::vector<StepTraffic> count_step_traffic(const RunConfig& config, const Layout& layout, HeldElements held,
                                            int64_t seq_len, const std::vector<int>& supernode);

/// That a token with k of `experts` experts, drawn evenly, has one of `owned` ones.
double probability_of_any(int64_t experts, int64_t owned, int64_t k);

}  // namespace athanor
