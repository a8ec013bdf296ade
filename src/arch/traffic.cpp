#include "arch/traffic.h"

#include <algorithm>
#include <map>

namespace athanor {
namespace {

// Every rank of each group sends `bytes` to each other one.
StepTraffic all_pairs(std::string what, const std::vector<std::vector<int>>& groups, double bytes,
                      const std::vector<int>& supernode) {
  double inside = 0, pairs = 0;
  for (const auto& group : groups) {
    std::map<int, double> members;
    for (const int rank : group) ++members[supernode[static_cast<size_t>(rank)]];
    for (const auto& [node, count] : members) inside += count * (count - 1);
    const auto size = static_cast<double>(group.size());
    pairs += size * (size - 1);
  }
  return {std::move(what), inside * bytes, (pairs - inside) * bytes};
}

void add(StepTraffic& sum, const StepTraffic& more) {
  sum.inside += more.inside;
  sum.outside += more.outside;
}

// What one parameter group's gradients and weights go over.
struct Groups {
  std::string name;
  GroupKind all, inner, outer;
};

}  // namespace

std::vector<int> supernodes_of(const TopologyConfig& topology, int world_size) {
  std::vector<int> supernode(static_cast<size_t>(world_size));
  if (topology.ranks_per_node == 0 || topology.nodes_per_supernode == 0) return supernode;
  for (int64_t rank = 0; rank < world_size; ++rank) {
    supernode[static_cast<size_t>(rank)] =
        static_cast<int>(rank / topology.ranks_per_node / topology.nodes_per_supernode);
  }
  return supernode;
}

double probability_of_any(int64_t experts, int64_t owned, int64_t k) {
  double none = 1;
  for (int64_t drawn = 0; drawn < k; ++drawn) {
    none *= static_cast<double>(std::max<int64_t>(0, experts - owned - drawn)) / static_cast<double>(experts - drawn);
  }
  return 1 - none;
}

std::vector<StepTraffic> count_step_traffic(const RunConfig& config, const Layout& layout, HeldElements held,
                                            int64_t seq_len, const std::vector<int>& supernode) {
  const std::string& sharding = config.parallelism.sharding;
  const double reduced = config.train.reduce_dtype == "bfloat16" ? 2 : 4,
               read = config.train.dtype == "bfloat16" ? 2 : 4;
  const auto over = [&](GroupKind kind, double bytes) { return all_pairs("", layout.groups(kind), bytes, supernode); };
  const auto size = [&](GroupKind kind) { return static_cast<double>(layout.group_of(kind, 0).size()); };
  std::vector<StepTraffic> table;
  const auto count = [&](const Groups& groups, int64_t elements) {
    const double b = static_cast<double>(elements) * reduced, w = static_cast<double>(elements) * read;
    StepTraffic gradients{.what = groups.name + " gradients"}, weights{.what = groups.name + " weights"};
    if (sharding == "hierarchical") {
      const double inner = size(groups.inner), outer = size(groups.outer);
      add(gradients, over(groups.inner, b / inner));
      add(gradients, over(groups.outer, 2 * b / inner / outer));
      add(weights, over(groups.inner, w / inner));
    } else {
      const double n = size(groups.all);
      add(gradients, over(groups.all, (sharding == "none" ? 2 : 1) * b / n));
      const bool copies = sharding == "optimizer" && groups.all == GroupKind::kData;
      if (copies) add(gradients, over(GroupKind::kExpert, b / n));
      const GroupKind sharers = copies ? GroupKind::kExpertData : groups.all;
      if (sharding != "none") add(weights, over(sharers, w / size(sharers)));
    }
    table.push_back(gradients);
    table.push_back(weights);
  };
  count({"dense", GroupKind::kData, GroupKind::kShard, GroupKind::kReplicate}, held.dense);
  if (!config.model.is_moe()) return table;
  count({"expert", GroupKind::kExpertData, GroupKind::kExpertShard, GroupKind::kExpertReplicate}, held.expert);
  const double tokens = static_cast<double>(config.train.global_batch_size * seq_len) / layout.data();
  const double reached = config.moe.dispatch == "allgather"
                             ? 1
                             : probability_of_any(config.model.num_experts, config.model.num_experts / layout.expert(),
                                                  config.model.num_experts_per_tok);
  const double row = static_cast<double>(config.model.hidden_size) * read;
  table.push_back(all_pairs("tokens", layout.groups(GroupKind::kExpert),
                            4 * row * tokens * reached * static_cast<double>(config.model.num_sparse_layers()),
                            supernode));
  return table;
}

}  // namespace athanor
