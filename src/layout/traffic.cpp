#include "layout/traffic.h"

#include <algorithm>

namespace athanor::inline layout {
namespace {

const char* purpose_name(TrafficPurpose purpose) {
  switch (purpose) {
    case TrafficPurpose::kGradients: return "gradients";
    case TrafficPurpose::kWeights: return "weights";
    case TrafficPurpose::kLayers: return "layers";
    case TrafficPurpose::kVocabulary: return "vocabulary";
    case TrafficPurpose::kStages: return "stages";
    case TrafficPurpose::kTokens: return "tokens";
    case TrafficPurpose::kBalance: return "balance";
    case TrafficPurpose::kLosses: return "losses";
    case TrafficPurpose::kUpdates: return "updates";
  }
  return "";
}

}  // namespace

std::string TrafficKind::name() const {
  const std::string text = purpose_name(purpose);
  return replication ? replication->name() + (" " + text) : text;
}

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

double share_inside(const RankTraffic& line, const std::vector<int>& group, int rank,
                    const std::vector<int>& supernode) {
  const auto is_inside = [&](int other) {
    return supernode[static_cast<size_t>(other)] == supernode[static_cast<size_t>(rank)];
  };
  if (line.peer >= 0) return is_inside(group[static_cast<size_t>(line.peer)]) ? 1 : 0;
  const auto others = std::ranges::count_if(group, [&](int other) { return other != rank && is_inside(other); });
  return static_cast<double>(others) / std::max(1.0, static_cast<double>(group.size()) - 1);
}

std::vector<StepTraffic> count_step_traffic(const RunConfig& config, const Layout& layout, int64_t seq_len,
                                            const std::vector<int>& supernode) {
  std::vector<StepTraffic> table;
  // Ranks that hold the same part of the model send the same amounts; only their distances differ.
  for (const int place : layout.group_of(GroupKind::kModel, 0)) {
    for (const RankTraffic& line : count_rank_traffic(config, layout, place, seq_len)) {
      auto sum = std::ranges::find(table, line.what, &StepTraffic::what);
      if (sum == table.end()) sum = table.insert(sum, {line.what, 0, 0});
      for (const auto& group : layout.groups(line.group)) {
        for (const int rank : group) {
          const bool alike = layout.coordinate(rank, Axis::kPipeline) == layout.coordinate(place, Axis::kPipeline) &&
                             layout.coordinate(rank, Axis::kTensor) == layout.coordinate(place, Axis::kTensor);
          if (!alike) continue;
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
