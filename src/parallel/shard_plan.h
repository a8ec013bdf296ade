#pragma once
// The rank that updates each part of the parameters, and the groups over which gradients are summed and weights
// gathered.
//
//   sharding      state of dense parameters over     of experts over     a bucket's gradient is
//   none          –                                  –                   all-reduced
//   optimizer     D / E   (SO)                       D / E               reduce-scattered; dense parts then gathered in
//                                                                        the expert group, whose ranks own the same
//   ep_aware      D       (EPSO, Optimus §3.2)       D / E               reduce-scattered
//   hierarchical  shard   (ParO, BaGuaLu §4.4)       shard'              reduce-scattered inside, all-reduced outside
//
// Dense gradients are summed over all D data ranks, those of experts over the D / E that hold the same experts. Every
// bucket is cut into as many parts as there are ranks in its sum. A rank's `unique` part belongs to no other data rank
// under any sharding, so that norms count and checkpoints write each element once. The range that the rank owns
// (updates) is a sequence of parts that contains the unique one.
//
// Parameters that several tensor or pipeline ranks hold (layout/holding.h: groups replicated, partial, key_value, tied)
// are sharded by each of these ranks like dense ones. After the sums over data ranks, the gradients are summed over
// these ranks (`beside`), or, if each is already the whole gradient, taken from the first of them. The `unique` part is
// then the first one's.

#include <map>
#include <string>

#include "layout/buckets.h"
#include "parallel/mesh.h"

namespace athanor {

enum class ShardingKind { kNone, kOptimizer, kEpAware, kHierarchical };
ShardingKind parse_sharding(const std::string& name);

/// The plan of one parameter group (layout/holding.h).
struct GroupPlan {
  enum class Second { kNothing, kAllGather, kAllReduce };

  int64_t parts = 1, unique_part = 0;  ///< number of parts of a bucket, and this rank's own part
  /// Number of shards of a bucket (the parts of equal owners joined), and this rank's shard.
  int64_t shards = 1, owned_shard = 0;

  comm::Communicator* sum = nullptr;  ///< all ranks that the gradient is summed over
  /// First step: a reduce-scatter over these ranks; null: one all-reduce over `sum`.
  comm::Communicator* scatter = nullptr;
  Second second = Second::kNothing;  ///< second step, over `with`
  comm::Communicator* with = nullptr;
  comm::Communicator* gather = nullptr;  ///< ranks whose shards make the bucket whole; null: every rank owns all of it
  comm::Communicator* copies = nullptr;  ///< data ranks that own the same shard

  comm::Communicator* beside = nullptr;  ///< tensor or pipeline ranks that hold the same parameters; null: none
  bool beside_adds = false;              ///< true: their gradients are partial sums; false: they are equal

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
  /// True for one rank: there is nothing to reduce or gather.
  bool is_trivial() const { return mesh_.layout().world_size() == 1; }

  FlatRange owned(const Bucket& bucket) const;
  /// The part of `owned` that belongs to no other data rank.
  FlatRange part(const Bucket& bucket) const;
  /// The part of `owned` that belongs to no other rank: empty unless this rank is the first of `beside`.
  FlatRange unique(const Bucket& bucket) const;
  /// Returns the sharding for ParameterStore. It holds a copy of the plan's numbers.
  Sharding sharding(int64_t bucket_elements) const;

 private:
  const Mesh& mesh_;
  ShardingKind kind_;
  std::map<std::string, GroupPlan> groups_;
};

}  // namespace athanor
