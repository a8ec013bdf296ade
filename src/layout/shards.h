#pragma once
// The rank that updates each part of the parameters, as arithmetic on a layout: without communicators, so that memory
// formulas, a dry run and a planner use what training uses. parallel/shard_plan.h adds the communicators.
//
// The table has the number of ranks among which the optimizer state of dense parameters and of experts is divided, and
// how a bucket's gradient becomes that of its owners. D is the number of data ranks and E the expert degree; shard and
// shard' are the sizes in layout/layout.h. SO, EPSO and ParO are the names in the papers.
//
//   sharding      dense                          experts   gradient
//   none          1                              1         all-reduced
//   optimizer     D / E   (SO)                   D / E     reduce-scattered; dense parts are then gathered over the
//                                                          expert group, whose ranks own the same shard
//   ep_aware      D       (EPSO, Optimus §3.2)   D / E     reduce-scattered
//   hierarchical  shard   (ParO, BaGuaLu §4.4)   shard'    reduce-scattered over kShard (experts: kExpertShard), then
//                                                          all-reduced over kReplicate (experts: kExpertReplicate)
//
// Dense gradients are summed over all D data ranks, those of experts over the D / E that hold the same experts. Every
// bucket is cut into as many parts as there are ranks in its sum. A rank's canonical part belongs to no other data rank
// under any sharding, so that norms count and checkpoints write each element once. The range that the rank owns
// (updates) is a sequence of parts that contains the canonical one.
//
// Parameters that a replica group holds (layout/replication.h) are sharded by each of its ranks like dense ones. After
// the sums over data ranks, the gradients are summed over the replica group, or, if each is already the whole gradient,
// taken from its first rank. That rank is the canonical one.

#include <cstdint>
#include <optional>
#include <vector>

#include "config/checkpoint_config.h"
#include "config/parallelism_config.h"
#include "layout/buckets.h"
#include "layout/layout.h"
#include "layout/replication.h"

namespace athanor::inline layout {

/// The groups of ranks over which the buckets of one replication kind are reduced and gathered.
struct ShardRule {
  enum class Second { kNothing, kAllGather, kAllReduce };

  GroupKind sum = GroupKind::kData;   ///< all ranks that the gradient is summed over
  std::optional<GroupKind> scatter;   ///< the first step is a reduce-scatter over these; none: an all-reduce over `sum`
  Second second = Second::kNothing;   ///< the second step is over `copies`
  std::optional<GroupKind> gather;    ///< ranks whose shards make the bucket whole; none: every rank owns all of it
  std::optional<GroupKind> copies;    ///< data ranks that own the same shard; none: no other does
  std::optional<GroupKind> replicas;  ///< the replica group, if the kind has one
};
ShardRule shard_rule(ShardingKind sharding, Replication replication);

/// How the buckets of one replication kind are cut, and what is one rank's. Indices are from 0.
struct Shards {
  int64_t parts = 1, canonical_part = 0;  ///< number of parts of a bucket, and the index of this rank's canonical part
  int64_t shards = 1, owned_shard = 0;    ///< number of shards (parts with the same owners, joined), and this rank's
  int64_t copies = 1, copy = 0;           ///< number of data ranks with the same shard, and this rank's index
  bool is_canonical = true;               ///< this rank is the first of its replica group

  FlatRange owned(FlatRange bucket) const { return part_of(bucket, shards, owned_shard); }
  /// Returns the part of `owned` that belongs to no other data rank.
  FlatRange part(FlatRange bucket) const { return part_of(bucket, parts, canonical_part); }
  /// Returns the part of `owned` that belongs to no other rank: empty unless this rank is canonical.
  FlatRange canonical(FlatRange bucket) const {
    return is_canonical ? part(bucket) : FlatRange{bucket.begin, bucket.begin};
  }
  /// Returns the number of parts of each bucket that this rank writes into checkpoints.
  int64_t num_written(Writers writers) const {
    if (!is_canonical) return 0;
    return writers == Writers::kScattered ? 1 : copy == 0 ? copies : 0;
  }
  /// Returns these parts of a bucket, in ascending order. Together the ranks have every part once, and the parts are
  /// the same whoever writes them.
  std::vector<FlatRange> written(FlatRange bucket, Writers writers) const;
};
Shards shards_of(const Layout& layout, int rank, ShardingKind sharding, Replication replication);

/// Returns Sharding::bucket_elements of a configuration. parallelism.bucket_mb is in units of 10^6 bytes of fp32.
int64_t bucket_elements(const RunConfig& config);

/// Returns how a rank holds its parameters, for ParameterStore and dry runs.
Sharding make_sharding(const Layout& layout, int rank, ShardingKind sharding, int64_t bucket_elements);

}  // namespace athanor::inline layout
