#include "layout/shards.h"

#include <algorithm>
#include <map>

#include "base/error.h"

namespace athanor::inline layout {

ShardRule shard_rule(ShardingKind sharding, Replication replication) {
  const bool experts = replication.is_expert();
  ShardRule rule;
  rule.sum = replication.data_ranks();
  rule.replicas = replication.replicas();
  if (sharding == ShardingKind::kNone) {
    rule.copies = rule.sum;
  } else if (sharding == ShardingKind::kHierarchical) {
    rule.scatter = rule.gather = experts ? GroupKind::kExpertShard : GroupKind::kShard;
    rule.second = ShardRule::Second::kAllReduce;
    rule.copies = experts ? GroupKind::kExpertReplicate : GroupKind::kReplicate;
  } else if (sharding == ShardingKind::kOptimizer && !experts) {
    // SO: what an expert group's ranks hold together is owned by each of them.
    rule.scatter = rule.sum;
    rule.second = ShardRule::Second::kAllGather;
    rule.gather = GroupKind::kExpertData;
    rule.copies = GroupKind::kExpert;
  } else {
    rule.scatter = rule.gather = rule.sum;
  }
  return rule;
}

Shards shards_of(const Layout& layout, int rank, ShardingKind sharding, Replication replication) {
  const ShardRule rule = shard_rule(sharding, replication);
  const auto size = [&](std::optional<GroupKind> group) { return group ? layout.group_size(*group, rank) : 1; };
  const auto index = [&](std::optional<GroupKind> group) { return group ? layout.index_in_group(*group, rank) : 0; };
  Shards shards;
  shards.parts = size(rule.sum);
  shards.shards = size(rule.gather);
  shards.owned_shard = index(rule.gather);
  // Within an owned shard, its owners take turns.
  shards.copies = size(rule.copies);
  shards.copy = index(rule.copies);
  shards.canonical_part = shards.owned_shard * shards.copies + shards.copy;
  shards.is_canonical = index(rule.replicas) == 0;
  return shards;
}

std::vector<FlatRange> Shards::written(FlatRange bucket, Writers writers) const {
  std::vector<FlatRange> written;
  const int64_t first = writers == Writers::kScattered ? canonical_part : owned_shard * copies;
  for (int64_t i = 0; i < num_written(writers); ++i) written.push_back(part_of(bucket, parts, first + i));
  return written;
}

int64_t bucket_elements(const RunConfig& config) {
  return std::max<int64_t>(1, static_cast<int64_t>(config.parallelism.bucket_mb * 1e6 / sizeof(float)));
}

Sharding make_sharding(const Layout& layout, int rank, ShardingKind kind, int64_t bucket_elements) {
  Sharding sharding;
  sharding.bucket_elements = bucket_elements;
  std::map<Replication, Shards> shards;
  for (const Replication replication : kReplications) {
    shards[replication] = shards_of(layout, rank, kind, replication);
    sharding.parts[replication] = shards[replication].parts;
  }
  sharding.owned = [shards](const Bucket& bucket) { return shards.at(bucket.replication).owned(bucket.range); };
  return sharding;
}

}  // namespace athanor::inline layout
