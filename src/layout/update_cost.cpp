#include "layout/update_cost.h"

#include <algorithm>
#include <map>

#include "base/matrices_at_once.h"
#include "config/precision.h"
#include "layout/holding.h"
#include "layout/optimizer_state.h"
#include "layout/shards.h"

namespace athanor::inline layout {
namespace {

void add_muon(const HomePlan& plan, const Layout& layout, int rank, UpdateCost& cost) {
  int64_t largest = 0, all = 0;
  std::map<GroupKind, RankTraffic> by_group;
  for (const HomeExchange& each : plan.exchanges()) {
    largest = std::max(largest, each.sent + each.received);
    all += each.sent + each.received;
    if (layout.group_of(each.group, rank).size() < 2) continue;
    RankTraffic& line = by_group[each.group];
    line.calls += 1, line.bytes += 4.0 * static_cast<double>(each.sent);
  }
  for (auto& [group, line] : by_group) {
    line.what = {TrafficPurpose::kUpdates}, line.collective = Collective::kAllToAll, line.group = group;
    cost.sent.push_back(line);
  }
  cost.held_bytes = 4.0 * static_cast<double>(plan.held_elements());
  cost.exchange_bytes = 4.0 * static_cast<double>(largest);
  cost.all_exchanges_bytes = 4.0 * static_cast<double>(all);
  for (const HomeMatrix& matrix : plan.matrices)
    if (plan.is_home(matrix)) ++cost.computed[{matrix.rows, matrix.columns}];
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

double count_update_bytes(const UpdateCost& cost, const OptimizerConfig& config, Multiplier multiplier) {
  const Orthogonalizer how{orthogonalize_type(config) == NumberType::kBFloat16, multiplier.on_device};
  double products = 0;
  for (const auto& [shape, count] : cost.computed)
    products = std::max(products, orthogonal_scratch(count, shape.first, shape.second, how));
  if (multiplier.on_device) return cost.held_bytes + cost.all_exchanges_bytes + products;
  return cost.held_bytes + std::max(cost.exchange_bytes, products);
}

double count_update_bytes(const RunConfig& config, const Layout& layout, int rank, Multiplier multiplier) {
  const auto optimizers = plan_optimizers(config.optimizer).optimizers;
  if (std::ranges::none_of(optimizers, [](const auto& each) { return each.needs.home_matrices; })) return 0;
  auto table = make_bucket_entries(held_parameters(config.model, config.parallelism, layout, rank));
  const ShardingKind sharding = config.parallelism.sharding;
  const auto buckets = lay_out_buckets(table, make_sharding(layout, rank, sharding, bucket_elements(config)));
  return count_update_bytes(count_update_cost(config, layout, rank, table, buckets), config.optimizer, multiplier);
}

double orthogonal_scratch(int64_t batch, int64_t rows, int64_t columns, Orthogonalizer how) {
  const auto at_once = static_cast<double>(std::min(batch, matrices_at_once(rows, columns, how.on_device)));
  const auto side = static_cast<double>(std::min(rows, columns)), square = side * side,
             whole = static_cast<double>(rows) * static_cast<double>(columns), size = how.bf16 ? 2.0 : 4.0;
  if (!how.on_device) return at_once * (2 * size * (whole + square) + (how.bf16 ? 4 * square : 0));
  const double turned = rows > columns ? size * whole : 0;
  return at_once * std::max(2 * size * (whole + square), (how.bf16 ? 4 + size : 4) * whole + turned);
}

}  // namespace athanor::inline layout
