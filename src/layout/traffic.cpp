#include "layout/traffic.h"

#include <algorithm>

namespace athanor::inline layout {
namespace {

// Gradients and weights of experts have groups of their own.
std::string name_of(const RankTraffic& line) {
  const std::string name = purpose_name(line.purpose);
  if (line.purpose != TrafficPurpose::kGradients && line.purpose != TrafficPurpose::kWeights) return name;
  const bool is_expert = line.group == GroupKind::kExpertData || line.group == GroupKind::kExpertShard ||
                         line.group == GroupKind::kExpertReplicate;
  return (is_expert ? "expert " : "dense ") + name;
}

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

double share_inside(const RankTraffic& line, const std::vector<int>& group, int rank,
                    const std::vector<int>& supernode) {
  const auto is_inside = [&](int other) {
    return supernode[static_cast<size_t>(other)] == supernode[static_cast<size_t>(rank)];
  };
  if (line.peer >= 0) return is_inside(group[static_cast<size_t>(line.peer)]) ? 1 : 0;
  const auto others = std::ranges::count_if(group, [&](int other) { return other != rank && is_inside(other); });
  return static_cast<double>(others) / std::max(1.0, static_cast<double>(group.size()) - 1);
}

std::vector<StepTraffic> count_step_traffic(const Layout& layout, const std::vector<std::vector<RankTraffic>>& sent,
                                            const std::vector<int>& supernode) {
  std::vector<StepTraffic> table;
  for (int place = 0; place < layout.pipeline(); ++place) {
    for (const RankTraffic& line : sent[static_cast<size_t>(place)]) {
      const std::string what = name_of(line);
      auto sum = std::ranges::find(table, what, &StepTraffic::what);
      if (sum == table.end()) sum = table.insert(sum, {what, 0, 0});
      for (const auto& group : layout.groups(line.group)) {
        for (const int rank : group) {
          if (layout.coordinate(rank, Axis::kPipeline) != place) continue;
          const double share = share_inside(line, group, rank, supernode);
          sum->inside += line.bytes * share;
          sum->outside += line.bytes * (1 - share);
        }
      }
    }
  }
  return table;
}

}  // namespace athanor::inline layout
