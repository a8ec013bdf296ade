#include "parallel/shard_plan.h"

#include "base/error.h"

namespace athanor {
namespace {

// The ranks that matter to one parameter group: all that hold it, and those split in an inner and an outer part.
struct Ranks {
  comm::Communicator &all, &inner, &outer;
};

GroupPlan not_sharded(const Ranks& ranks) {
  GroupPlan plan;
  plan.copies = &ranks.all;
  return plan;
}

GroupPlan sharded(const Ranks& ranks) {
  GroupPlan plan;
  plan.shards = ranks.all.size();
  plan.owned_shard = ranks.all.rank();
  plan.scatter = plan.gather = &ranks.all;
  return plan;
}

// SO: what an expert group's ranks hold together is owned by each of them.
GroupPlan sharded_over_expert_data(const Ranks& ranks, comm::Communicator& expert, comm::Communicator& expert_data) {
  GroupPlan plan;
  plan.shards = expert_data.size();
  plan.owned_shard = expert_data.rank();
  plan.scatter = &ranks.all;
  plan.second = GroupPlan::Second::kAllGather;
  plan.with = plan.copies = &expert;
  plan.gather = &expert_data;
  return plan;
}

GroupPlan hierarchical(const Ranks& ranks) {
  GroupPlan plan;
  plan.shards = ranks.inner.size();
  plan.owned_shard = ranks.inner.rank();
  plan.scatter = plan.gather = &ranks.inner;
  plan.second = GroupPlan::Second::kAllReduce;
  plan.with = plan.copies = &ranks.outer;
  return plan;
}

GroupPlan finished(GroupPlan plan, const Ranks& ranks, ShardingKind kind) {
  plan.sum = &ranks.all;
  plan.parts = ranks.all.size();
  // Within the owned shard of an inner rank, its outer ranks take turns.
  plan.unique_part = kind == ShardingKind::kHierarchical ? ranks.inner.rank() * ranks.outer.size() + ranks.outer.rank()
                                                         : ranks.all.rank();
  return plan;
}

}  // namespace

ShardingKind parse_sharding(const std::string& name) {
  if (name == "none") return ShardingKind::kNone;
  if (name == "optimizer") return ShardingKind::kOptimizer;
  if (name == "ep_aware") return ShardingKind::kEpAware;
  ATHANOR_CHECK(name == "hierarchical",
                "parallelism.sharding: expected none, optimizer, ep_aware or hierarchical, got {}", name);
  return ShardingKind::kHierarchical;
}

ShardPlan::ShardPlan(const Mesh& mesh, ShardingKind kind) : mesh_(mesh), kind_(kind) {
  const Ranks dense{mesh.group(GroupKind::kData), mesh.group(GroupKind::kShard), mesh.group(GroupKind::kReplicate)};
  const Ranks expert{mesh.group(GroupKind::kExpertData), mesh.group(GroupKind::kExpertShard),
                     mesh.group(GroupKind::kExpertReplicate)};
  const auto plan = [&](const Ranks& ranks, bool is_dense) {
    switch (kind) {
      case ShardingKind::kNone: return not_sharded(ranks);
      case ShardingKind::kHierarchical: return hierarchical(ranks);
      case ShardingKind::kOptimizer:
        if (is_dense)
          return sharded_over_expert_data(ranks, mesh.group(GroupKind::kExpert), mesh.group(GroupKind::kExpertData));
        [[fallthrough]];
      case ShardingKind::kEpAware: break;
    }
    return sharded(ranks);
  };
  groups_["dense"] = finished(plan(dense, true), dense, kind);
  groups_["expert"] = finished(plan(expert, false), expert, kind);
  const auto held_beside = [&](const char* name, GroupKind kind_of_ranks, bool adds) {
    GroupPlan held = groups_["dense"];
    held.beside = &mesh.group(kind_of_ranks);
    held.beside_adds = adds;
    groups_[name] = held;
  };
  held_beside("replicated", GroupKind::kTensor, false);
  held_beside("partial", GroupKind::kTensor, true);
  held_beside("key_value", GroupKind::kKeyValue, true);
  held_beside("tied", GroupKind::kTied, true);
}

FlatRange ShardPlan::owned(const Bucket& bucket) const {
  return part_of(bucket.range, of(bucket).shards, of(bucket).owned_shard);
}

FlatRange ShardPlan::part(const Bucket& bucket) const {
  return part_of(bucket.range, of(bucket).parts, of(bucket).unique_part);
}

FlatRange ShardPlan::unique(const Bucket& bucket) const {
  return of(bucket).counts() ? part(bucket) : FlatRange{bucket.range.begin, bucket.range.begin};
}

Sharding ShardPlan::sharding(int64_t bucket_elements) const {
  Sharding sharding;
  sharding.bucket_elements = bucket_elements;
  std::map<std::string, std::pair<int64_t, int64_t>> owned;
  for (const auto& [name, plan] : groups_) {
    sharding.parts[name] = plan.parts;
    owned[name] = {plan.shards, plan.owned_shard};
  }
  sharding.owned = [owned](const Bucket& bucket) {
    const auto& [shards, index] = owned.at(bucket.group);
    return part_of(bucket.range, shards, index);
  };
  return sharding;
}

}  // namespace athanor
