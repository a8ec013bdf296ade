#pragma once
// Which rank updates what, and over which groups gradients are summed and weights come back.
//
//   sharding      state of dense parameters over     of experts over     a bucket's gradient is
//   none          –                                  –                   all-reduced
//   optimizer     D / E   (SO)                       D / E               reduce-scattered; dense parts then gathered in
//                                                                        the expert group, whose ranks own the same
//   ep_aware      D       (EPSO, Optimus §3.2)       D / E               reduce-scattered
//   hierarchical  shard   (ParO, BaGuaLu §4.4)       shard'              reduce-scattered inside, all-reduced outside
//
// Dense gradients are summed over all D data ranks, experts' over the D / E that hold the same experts. Every bucket is
// cut in as many parts as ranks are summed over; a rank's `unique` part is its alone under every sharding, so that
// norms count and checkpoints write each element once. What it owns (updates) is a run of parts that contains it.
//
// What tensor or pipeline ranks hold alike (arch/holding.h: groups replicated, partial, key_value, tied) is sharded
// like everything dense by each of them. Their sums over data ranks are added up `beside` one another, or, where each
// is the whole gradient already, taken from the first; `unique` is the first one's.

#include <map>
#include <string>

#include "parallel/buckets.h"
#include "parallel/mesh.h"

namespace athanor {

enum class ShardingKind { kNone, kOptimizer, kEpAware, kHierarchical };
ShardingKind parse_sharding(const std::string& name);

/// Of one parameter group (arch/holding.h).
struct GroupPlan {
  enum class Second { kNothing, kAllGather, kAllReduce };

  int64_t parts = 1, unique_part = 0;   ///< of a bucket
  int64_t shards = 1, owned_shard = 0;  ///< of a bucket: the parts of equal owners joined

  comm::Communicator* sum = nullptr;      ///< all ranks that the gradient is summed over
  comm::Communicator* scatter = nullptr;  ///< first a reduce-scatter over these; null: one all-reduce over `sum`
  Second second = Second::kNothing;       ///< then, over `with`
  comm::Communicator* with = nullptr;
  comm::Communicator* gather = nullptr;  ///< whose shards make the bucket whole; null: every rank owns all
  comm::Communicator* copies = nullptr;  ///< data ranks that own the same

  comm::Communicator* beside = nullptr;  ///< tensor or pipeline ranks that hold the same; null: none
  bool beside_adds = false;              ///< their gradients are parts of a sum; else they are equal

  bool counts() const { return !beside || beside->rank() == 0; }
};

class ShardPlan {
 public:
  /// `mesh` must outlive the plan.
  ShardPlan(const Mesh& mesh, ShardingKind kind);

  const Mesh& mesh() const { return mesh_; }
  ShardingKind kind() const { return kind_; }
  const GroupPlan& of(const std::string& group) const { return groups_.at(group); }
  const GroupPlan& of(const Bucket& bucket) const { return of(bucket.group); }
  /// One rank: nothing to reduce or gather.
  bool is_trivial() const { return mesh_.layout().world_size() == 1; }

  FlatRange owned(const Bucket& bucket) const;
  /// The part of it that no other data rank has.
  FlatRange part(const Bucket& bucket) const;
  /// The part of it that no other rank has: empty where a rank beside this one counts.
  FlatRange unique(const Bucket& bucket) const;
  /// For the store. Holds a copy of the plan's numbers.
  Sharding sharding(int64_t bucket_elements) const;

 private:
  const Mesh& mesh_;
  ShardingKind kind_;
  std::map<std::string, GroupPlan> groups_;
};

}  // namespace athanor
