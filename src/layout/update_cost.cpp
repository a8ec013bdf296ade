#include "layout/update_cost.h"

#include <algorithm>
#include <map>

#include "layout/optimizer_state.h"
#include "layout/shards.h"

namespace athanor::inline layout {
namespace {

void add_muon(const HomePlan& plan, const Layout& layout, int rank, UpdateCost& cost) {
  std::map<GroupKind, RankTraffic> by_group;
  for (const HomeExchange& each : plan.exchanges()) {
    if (layout.group_of(each.group, rank).size() < 2) continue;
    RankTraffic& line = by_group[each.group];
    line.calls += 1, line.bytes += 4.0 * static_cast<double>(each.sent);
  }
  for (auto& [group, line] : by_group) {
    line.what = {TrafficPurpose::kUpdates}, line.collective = Collective::kAllToAll, line.group = group;
    cost.sent.push_back(line);
  }
}

void add_lamb(const RunConfig& config, const Layout& layout, int rank, UpdateCost& cost) {
  int64_t matrices = 0;
  for (const ParameterSpec& spec : make_inventory(config.model)) matrices += count_matrices(spec);
  for (const GroupKind group : {GroupKind::kModel, GroupKind::kData}) {
    const auto n = static_cast<double>(layout.group_of(group, rank).size());
    if (n < 2) continue;
    cost.sent.push_back({.what = {TrafficPurpose::kUpdates},
                         .collective = Collective::kAllReduce,
                         .group = group,
                         .calls = 1,
                         .bytes = 2 * 16.0 * static_cast<double>(matrices) * (n - 1) / n});
  }
}

}  // namespace

UpdateCost count_update_cost(const RunConfig& config, const Layout& layout, int rank,
                             const std::vector<BucketEntry>& table, const std::vector<Bucket>& buckets) {
  UpdateCost cost;
  const OptimizerPlan optimizers = plan_optimizers(config.optimizer);
  const auto updated_by = [&](const std::string& name) {
    return [&optimizers, name](const BucketEntry& entry) {
      return optimizers.optimizer_of(entry.name, entry.role).name == name;
    };
  };
  for (const OptimizerDeclaration& each : optimizers.optimizers) {
    if (each.needs.tensor_norms) add_lamb(config, layout, rank, cost);
    if (each.needs.second_backward)
      cost.second_backwards = 1.0 / static_cast<double>(config.optimizer.hessian_interval);
    if (!each.needs.home_matrices) continue;
    const HomePlan plan =
        plan_homes({table, buckets, layout, rank, config.parallelism.sharding, updated_by(each.name)});
    add_muon(plan, layout, rank, cost);
  }
  return cost;
}

}  // namespace athanor::inline layout
