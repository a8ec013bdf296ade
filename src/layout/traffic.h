#pragma once
// The traffic of a layout in a step: what one rank sends in each collective, and what all ranks send within and between
// supernodes. The second (count_step_traffic) serves to choose a mapping.

#include <optional>
#include <string>
#include <vector>

#include "base/collective.h"
#include "layout/layout.h"
#include "layout/memory.h"

namespace athanor::inline layout {

/// What bytes are sent for: a row of the table at count_rank_traffic.
enum class TrafficPurpose {
  kGradients,
  kWeights,
  kLayers,
  kVocabulary,
  kStages,
  kTokens,
  kBalance,
  kLosses,
  kUpdates,  ///< layout/update_cost.h
};

/// A purpose, and for gradients and weights also the replication kind: these are counted for each kind.
struct TrafficKind {
  TrafficPurpose purpose = TrafficPurpose::kLosses;
  std::optional<Replication> replication = {};

  bool operator==(const TrafficKind&) const = default;
  std::string name() const;  ///< "dense gradients", "tokens", ...
};

/// The bytes that one rank sends over one of its groups in all calls of one kind in a step. Bytes that it sends to
/// itself are not counted.
struct RankTraffic {
  TrafficKind what;
  Collective collective = Collective::kAllReduce;
  GroupKind group = GroupKind::kWorld;
  int peer = -1;  ///< for a send: the receiver's index in the group; −1 for collectives
  double calls = 0, bytes = 0;
};

/// Returns the traffic of one rank of the world in a step. In what follows, n is the size of the group, D the number of
/// data ranks and E the expert degree. N is the number of tokens of a microbatch, and k the number of experts that a
/// token chooses. All amounts are bytes. For each replication kind (layout/replication.h), with b = held elements · 2
/// or 4 bytes (train.reduce_dtype) and w = held elements · 2 or 4 bytes (train.dtype):
///   gradients  A reduce-scatter over kData (experts: kExpertData), b(n−1)/n. Sharding optimizer adds an all-gather of
///              dense parts over kExpert, b(E−1)/D. Sharding none has an all-reduce, 2b(n−1)/n, instead. Sharding
///              hierarchical has a reduce-scatter over kShard (experts: kExpertShard) and an all-reduce of the owned
///              part (b/shard for dense parts) over kReplicate (experts: kExpertReplicate) instead. The owned part is
///              then sent within the replica group: by an all-reduce for partial, key_value and tied, by a broadcast
///              for replicated.
///   weights    An all-gather over the ranks that share the state, w(n−1)/n; sharding none: 0.
/// For the microbatches of a step, where A = N·hidden·2 or 4 bytes is the residual stream of a microbatch
/// (train.dtype):
///   layers     Over kTensor, for attention and for feed-forward of each layer: an all-reduce of A in forward and
///              one in backward; under sequence_parallel an all-gather and a reduce-scatter in each direction.
///              Recompute layer repeats the traffic of forward; under sequence_parallel, recompute attention, moe or
///              norm repeats the gather. OLMoE's QK-norm: 8N in forward, in backward, and in each recomputation. A
///              sparse layer: 4Nk in backward for the gradient of its choices' weights.
///   vocabulary Over kTensor: as for a layer, once for the embedding (forward) and once for the head (backward), and 12
///              bytes for each token of the loss.
///   stages     Over kPipeline: A / t to the next stage and back for each boundary (t: tensor degree under
///              sequence_parallel, else 1).
///   tokens     Over kExpert for each sparse layer: in forward S rows of A/N bytes out and S back, and 8k bytes of
///              choices for each row; in backward the same with 4k bytes for gradients of the weights; forward once
///              more under recompute moe or layer. S = N·p to each other rank, where p is the probability that the
///              rank has one of the token's k experts if these are drawn evenly: with X experts in all,
///              p = 1 − C(X − X/E, k) / C(X, k) (probability_of_any). Dispatch allgather: S = N. all_to_all_2d and auto
///              are counted as all_to_all.
///   balance    Over kBalance: 4 or 8 bytes for each choice.
///   losses     The values reported for a step, over kPipeline and kData.
std::vector<RankTraffic> count_rank_traffic(const RunConfig& config, const Layout& layout, int rank, int64_t seq_len);

/// Returns the share of a line's bytes that stays within the supernode of `rank`.
/// @param group  the ranks of the line's group, as Layout::group_of returns them.
/// @param supernode  the supernode of each rank of the world.
double share_inside(const RankTraffic& line, const std::vector<int>& group, int rank,
                    const std::vector<int>& supernode);

/// Bytes that all ranks together send in a step, within supernodes and between them.
struct StepTraffic {
  TrafficKind what;
  double inside = 0, outside = 0;
};

/// Returns the supernode (from 0) of each rank of the world; all are in 0 if the configuration does not define any.
std::vector<int> supernodes_of(const TopologyConfig& topology, int world_size);

/// Returns count_rank_traffic summed over all ranks, with one element for each TrafficKind.
std::vector<StepTraffic> count_step_traffic(const RunConfig& config, const Layout& layout, int64_t seq_len,
                                            const std::vector<int>& supernode);

/// Returns the probability that at least one of a token's k experts, drawn evenly from `experts`, is among `owned`
/// given ones.
double probability_of_any(int64_t experts, int64_t owned, int64_t k);

}  // namespace athanor::inline layout
