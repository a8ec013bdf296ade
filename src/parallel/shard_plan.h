#pragma once
// The communicators over which the gradients of each replication kind are summed and its weights gathered; the
// arithmetic and the table of shardings are in layout/shards.h.

#include <map>

#include "layout/shards.h"
#include "parallel/mesh.h"

namespace athanor::inline parallel {

/// The plan of one replication kind: ShardRule (layout/shards.h) with this rank's communicators, which belong to the
/// mesh, and this rank's part of each bucket.
struct GroupPlan {
  Shards shards;
  comm::Communicator* sum = nullptr;  ///< all data ranks that the gradient is summed over; never null
  /// First step: a reduce-scatter over these ranks; null: one all-reduce over `sum`.
  comm::Communicator* scatter = nullptr;
  ShardRule::Second second = ShardRule::Second::kNothing;  ///< second step, over `copies`
  comm::Communicator* gather = nullptr;  ///< ranks whose shards make the bucket whole; null: every rank owns all of it
  comm::Communicator* copies = nullptr;  ///< data ranks that own the same shard; null: no other does
  comm::Communicator* replicas = nullptr;  ///< the replica group; null: none
  bool replicas_add = false;               ///< true: their gradients are partial sums; false: they are equal

  /// True for the one rank of the replica group whose copy is counted and written, and if there is no such group.
  bool is_canonical() const { return shards.is_canonical; }
};

class ShardPlan {
 public:
  /// `mesh` must outlive the plan.
  ShardPlan(const Mesh& mesh, ShardingKind kind);

  const Mesh& mesh() const { return mesh_; }
  ShardingKind kind() const { return kind_; }
  const GroupPlan& of(Replication replication) const { return plans_.at(replication); }
  const GroupPlan& of(const Bucket& bucket) const { return of(bucket.replication); }
  /// True for one rank: there is nothing to reduce or gather.
  bool is_trivial() const { return mesh_.layout().world_size() == 1; }

  /// The ranges of Shards for one bucket, in flat memory.
  FlatRange owned(const Bucket& bucket) const { return of(bucket).shards.owned(bucket.range); }
  FlatRange part(const Bucket& bucket) const { return of(bucket).shards.part(bucket.range); }
  FlatRange canonical(const Bucket& bucket) const { return of(bucket).shards.canonical(bucket.range); }
  /// Returns the sharding for ParameterStore. @param bucket_elements  see Sharding.
  Sharding sharding(int64_t bucket_elements) const;

 private:
  const Mesh& mesh_;
  ShardingKind kind_;
  std::map<Replication, GroupPlan> plans_;
};

}  // namespace athanor::inline parallel
