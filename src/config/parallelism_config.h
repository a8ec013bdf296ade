#pragma once
// The configuration sections for the distribution of the work over ranks and for the links between ranks.
// layout/layout.h defines what the degrees mean together.

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "config/fields.h"
#include "config/ranges.h"

namespace athanor::inline config {

/// The order of microbatches through a pipeline; layout/schedules/ has the functions of each.
enum class PipelineSchedule { kGpipe, k1F1B, kInterleaved1F1B };
template <>
inline constexpr auto kWords<PipelineSchedule> = words<PipelineSchedule>({{"gpipe", PipelineSchedule::kGpipe},
                                                                          {"1f1b", PipelineSchedule::k1F1B},
                                                                          {"interleaved_1f1b",
                                                                           PipelineSchedule::kInterleaved1F1B}});

/// How the optimizer state is sharded (layout/shards.h).
enum class ShardingKind { kNone, kOptimizer, kEpAware, kHierarchical };
template <>
inline constexpr auto kWords<ShardingKind> = words<ShardingKind>({{"none", ShardingKind::kNone},
                                                                  {"optimizer", ShardingKind::kOptimizer},
                                                                  {"ep_aware", ShardingKind::kEpAware},
                                                                  {"hierarchical", ShardingKind::kHierarchical}});

/// The order in which ranks add tensors of their GPUs: as the library chooses, or along the tree of runs on CPUs.
enum class DeviceSums { kLibrary, kTree };
template <>
inline constexpr auto kWords<DeviceSums> = words<DeviceSums>({{"library", DeviceSums::kLibrary},
                                                              {"tree", DeviceSums::kTree}});

/// The modules whose activations can be computed again in backward.
enum class RecomputeKind { kNorm, kAttention, kMoe, kLayer };
template <>
inline constexpr auto kWords<RecomputeKind> = words<RecomputeKind>({{"norm", RecomputeKind::kNorm},
                                                                    {"attention", RecomputeKind::kAttention},
                                                                    {"moe", RecomputeKind::kMoe},
                                                                    {"layer", RecomputeKind::kLayer}});

/// Those that a run computes again.
struct RecomputeKinds {
  bool norm = false;       ///< outputs of the norms before attention and feed-forward
  bool attention = false;  ///< everything between the normed input and the output of attention
  /// Everything between the normed input and the output of the feed-forward, sparse or dense; routing is saved.
  bool moe = false;
  bool layer = false;  ///< everything between the residual streams before and after a layer; contains the others
};

/// Returns the kinds in a value of parallelism.recompute. Other words have been refused when the configuration was
/// read; here they are ignored.
inline RecomputeKinds parse_recompute(const std::vector<std::string>& kinds) {
  const auto has = [&](RecomputeKind kind) { return std::ranges::find(kinds, word_of(kind)) != kinds.end(); };
  return {has(RecomputeKind::kNorm), has(RecomputeKind::kAttention), has(RecomputeKind::kMoe),
          has(RecomputeKind::kLayer)};
}

struct ParallelismConfig {
  int64_t data_parallel_replicate_degree = 1;
  int64_t data_parallel_shard_degree = -1;
  int64_t expert_parallel_degree = 1;
  int64_t tensor_parallel_degree = 1;
  int64_t pipeline_parallel_degree = 1;
  Choice<PipelineSchedule> pipeline_schedule = PipelineSchedule::k1F1B;
  int64_t virtual_stages = 1;
  std::vector<int64_t> pipeline_split = {};
  bool sequence_parallel = false;
  Choice<ShardingKind> sharding = ShardingKind::kEpAware;
  NameOrNames mapping = "expert_inner";
  std::vector<std::string> recompute = {};
  double bucket_mb = 25.0;
  Choice<DeviceSums> device_sums = DeviceSums::kLibrary;
  bool check_collectives = false;
  double collective_timeout_s = 1800.0;

  void describe(Fields& f) {
    f.field("data_parallel_replicate_degree", data_parallel_replicate_degree,
            "number of replicas: data ranks are this times the shard degree; sharding hierarchical keeps this many "
            "copies of the optimizer state, the other kinds shard it over all data ranks",
            between(1, kMaxRanks));
    f.field("data_parallel_shard_degree", data_parallel_shard_degree,
            "data ranks of one replica; -1 takes the ranks that the other degrees leave",
            between_or_minus_one(1, kMaxRanks));
    f.field("expert_parallel_degree", expert_parallel_degree,
            "data ranks that share the experts; divides replicate · shard and model.num_experts",
            between(1, kMaxRanks));
    f.field("tensor_parallel_degree", tensor_parallel_degree, "ranks that share each matrix", between(1, kMaxRanks));
    f.field("pipeline_parallel_degree", pipeline_parallel_degree, "ranks that share the layers", between(1, kMaxRanks));
    f.field("pipeline_schedule", pipeline_schedule, "order of microbatches through the pipeline");
    f.field("virtual_stages", virtual_stages, "stages of each pipeline rank, for interleaved_1f1b",
            between(1, kMaxLayers));
    f.field("pipeline_split", pipeline_split,
            "layers of each pipeline stage, pipeline · virtual_stages numbers in the order of forward; empty: an even "
            "split by cost, which includes embedding and output",
            each_between(0, kMaxLayers));
    f.field("sequence_parallel", sequence_parallel,
            "each tensor rank keeps its part of the tokens between the matrices that ranks share: norms and the "
            "residual stream take a tensor_parallel_degree-th of the memory");
    f.field("sharding", sharding,
            "how the optimizer state is sharded: none (every rank has the state of all its parameters), optimizer (SO: "
            "over the ranks that hold the same experts), ep_aware (EPSO: experts over those, everything else over all "
            "data ranks), hierarchical (ParO: within each replica)");
    f.field("mapping", mapping,
            "which ranks are neighbours: expert_inner (those that share the experts), data_inner (those that hold the "
            "same experts, MoDa), or the axes pipeline, replicate, shard, expert, tensor in a list, outermost first");
    f.field("recompute", recompute, "modules whose activations are computed again in backward",
            each_one_of(words_of<RecomputeKind>()));
    f.field("bucket_mb", bucket_mb,
            "gradients are reduced in buckets of about this many MB (10^6 bytes, as fp32), while backward continues",
            between(4e-6, 1e6));
    f.field(
        "device_sums", device_sums,
        "how ranks add tensors of their GPUs: library (as NCCL does, in orders that it chooses, bfloat16 rounded at "
        "each hop) or tree (in the fixed order of runs on CPUs, rounded once; sends more between nodes)");
    f.field("check_collectives", check_collectives,
            "before each collective the ranks compare what they are about to do; this names a rank that is out of "
            "order, and costs time");
    f.field("collective_timeout_s", collective_timeout_s,
            "a collective that takes longer ends the run and names the ranks that are missing", between(0.001, 1e8));
  }
};

struct TopologyConfig {
  int64_t ranks_per_node = 0;
  int64_t nodes_per_supernode = 0;

  void describe(Fields& f) {
    f.field("ranks_per_node", ranks_per_node,
            "consecutive ranks that share a node: for moe.dispatch all_to_all_2d, for sums within nodes, and for whose "
            "fault "
            "a value is that is not finite, which is tried on another node; 0 uses the hosts' names",
            between(0, kMaxRanks));
    f.field("nodes_per_supernode", nodes_per_supernode,
            "consecutive nodes with fast links among them: traffic inside and outside is counted separately; 0: all "
            "nodes are one supernode",
            between(0, kMaxRanks));
  }
};

}  // namespace athanor::inline config
