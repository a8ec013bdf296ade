#pragma once
// The traffic of a layout in a step: what one rank sends in each collective (plan/rank_plan.h finds it), and what all
// ranks send within and between supernodes. The second (count_step_traffic) serves to choose a mapping.

#include <string>
#include <vector>

#include "base/collective.h"
#include "base/traffic_purpose.h"
#include "layout/layout.h"

namespace athanor::inline layout {

/// The bytes that one rank sends over one of its groups in all calls of one kind in a step. Bytes that it sends to
/// itself are not counted.
struct RankTraffic {
  TrafficPurpose purpose = TrafficPurpose::kLosses;
  Collective collective = Collective::kAllReduce;
  GroupKind group = GroupKind::kWorld;
  int peer = -1;  ///< for a send: the receiver's index in the group; −1 for collectives
  double calls = 0, bytes = 0;
  double inside = 0;  ///< those bytes that stay in the rank's supernode
};

/// Returns the share of a line's bytes that stays within the supernode of `rank`, in another mapping, if collectives
/// are flat: those of ranks that share nodes send less between nodes, and more within them.
/// @param group  the ranks of the line's group, as Layout::group_of returns them.
/// @param supernode  the supernode of each rank of the world.
double share_inside(const RankTraffic& line, const std::vector<int>& group, int rank,
                    const std::vector<int>& supernode);

/// Bytes that all ranks together send in a step, within supernodes and between them.
struct StepTraffic {
  std::string what;  ///< "expert gradients", "dense gradients", "tokens", …
  double inside = 0, outside = 0;
};

/// Returns the supernode (from 0) of each rank of the world; all are in 0 if the configuration does not define any.
std::vector<int> supernodes_of(const TopologyConfig& topology, int world_size);

/// Returns the traffic of all ranks, with one element for each `what`. Ranks with the same pipeline rank send the same
/// amounts; only their distances differ.
/// @param sent  for each pipeline rank, what one of its ranks sends.
std::vector<StepTraffic> count_step_traffic(const Layout& layout, const std::vector<std::vector<RankTraffic>>& sent,
                                            const std::vector<int>& supernode);

}  // namespace athanor::inline layout
