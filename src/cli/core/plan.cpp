#include "cli/core.h"
#include "plan/rank_memory.h"

namespace {

using namespace athanor;

// The same run where all collectives are flat, as in a comparison of mappings: on one node.
RunConfig on_one_node(RunConfig config) {
  config.topology = {};
  if (config.moe.dispatch == DispatchKind::kAllToAll2d) config.moe.dispatch = DispatchKind::kAllToAll;
  return config;
}

}  // namespace

ATHANOR_CORE_ENTRY(plan) {
  const auto& asked = *static_cast<const PlanArguments*>(arguments);
  const Layout& layout = asked.layout;
  const PlannedPlace place = planned_place(asked.config, layout.world_size());
  const RunConfig flat = on_one_node(asked.config);
  const std::vector<int> of_model = layout.group_of(GroupKind::kModel, 0);
  for (int i = 0; i < layout.pipeline(); ++i) {
    const int rank = of_model[static_cast<size_t>(i * layout.tensor())];  // tensor ranks have equal parts
    RankPlan plan = plan_rank(asked.config, layout, rank, place);
    asked.needs.push_back(plan.need);
    const bool is_flat = asked.config.topology.ranks_per_node == 0;
    asked.sent.push_back(is_flat ? std::move(plan.sent) : plan_rank(flat, layout, rank, place).sent);
  }
  return 0;
}
