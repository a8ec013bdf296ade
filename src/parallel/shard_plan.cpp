#include "parallel/shard_plan.h"

namespace athanor::inline parallel {

ShardPlan::ShardPlan(const Mesh& mesh, ShardingKind kind) : mesh_(mesh), kind_(kind) {
  const auto group = [&](std::optional<GroupKind> ranks) { return ranks ? &mesh.group(*ranks) : nullptr; };
  for (const Replication replication : kReplications) {
    const ShardRule rule = shard_rule(kind, replication);
    plans_[replication] = {.shards = shards_of(mesh.layout(), mesh.rank(), kind, replication),
                           .sum = group(rule.sum),
                           .scatter = group(rule.scatter),
                           .second = rule.second,
                           .gather = group(rule.gather),
                           .copies = group(rule.copies),
                           .replicas = group(rule.replicas),
                           .replicas_add = replication.replicas_add()};
  }
}

Sharding ShardPlan::sharding(int64_t bucket_elements) const {
  return make_sharding(mesh_.layout(), mesh_.rank(), kind_, bucket_elements);
}

}  // namespace athanor::inline parallel
