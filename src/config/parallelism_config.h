#pragma once
// The configuration sections for the distribution of the work over ranks and for the links between ranks.
// layout/layout.h defines what the degrees mean together.

#include <cstdint>
#include <string>
#include <vector>

#include "config/fields.h"
#include "config/ranges.h"

namespace athanor::inline config {

struct ParallelismConfig {
  int64_t data_parallel_replicate_degree = 1;
  int64_t data_parallel_shard_degree = -1;
  int64_t expert_parallel_degree = 1;
  int64_t tensor_parallel_degree = 1;
  int64_t pipeline_parallel_degree = 1;
  std::string pipeline_schedule = "1f1b";
  int64_t virtual_stages = 1;
  std::vector<int64_t> pipeline_split = {};
  bool sequence_parallel = false;
  std::string sharding = "ep_aware";
  NameOrNames mapping = "expert_inner";
  std::vector<std::string> recompute = {};
  double bucket_mb = 25.0;
  std::string device_sums = "library";
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
    f.field("pipeline_schedule", pipeline_schedule, "order of microbatches through the pipeline",
            one_of({"gpipe", "1f1b", "interleaved_1f1b"}));
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
            "data ranks), hierarchical (ParO: within each replica)",
            one_of({"none", "optimizer", "ep_aware", "hierarchical"}));
    f.field("mapping", mapping,
            "which ranks are neighbours: expert_inner (those that share the experts), data_inner (those that hold the "
            "same experts, MoDa), or the axes pipeline, replicate, shard, expert, tensor in a list, outermost first");
    f.field("recompute", recompute, "modules whose activations are computed again in backward",
            each_one_of({"norm", "attention", "moe", "layer"}));
    f.field("bucket_mb", bucket_mb,
            "gradients are reduced in buckets of about this many MB (10^6 bytes, as fp32), while backward continues",
            between(4e-6, 1e6));
    f.field(
        "device_sums", device_sums,
        "how ranks add tensors of their GPUs: library (as NCCL does, in orders that it chooses, bfloat16 rounded at "
        "each hop) or tree (in the fixed order of runs on CPUs, rounded once; sends more between nodes)",
        one_of({"library", "tree"}));
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
