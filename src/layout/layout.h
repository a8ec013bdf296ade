#pragma once
// How the ranks of a job share a model: named axes, and the groups of ranks that follow from them. This is plain
// arithmetic without communication, so that plan, dry runs and tests use the same layout as training.
//
// There are D = replicate × shard data ranks (data_parallel_replicate_degree, data_parallel_shard_degree), and the
// expert degree E divides D. E is the product of e_s = gcd(E, shard), which lies within the shard axis, and
// e_r = E / e_s, which lies within the replicate axis. The quotients replicate' and shard' are the axes replicate and
// shard of the list below, so that every group is a product of axes:
//   pipeline | replicate' = replicate / e_r | shard' = shard / e_s | expert = e_r × e_s | context (always 1) | tensor
// `mapping` defines the order of the axes over the ranks of the world. expert_inner is the order above, in which the
// pipeline coordinate varies slowest and the tensor coordinate fastest. data_inner (MoDa,
// BaGuaLu §4.2) puts expert outside of replicate' and shard': data parallelism among neighbours, all-to-all between
// supernodes.

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "config/run_config.h"

namespace athanor::inline layout {

enum class Axis { kPipeline, kReplicate, kShard, kExpert, kContext, kTensor };
inline constexpr int kNumAxes = 6;
const char* axis_name(Axis axis);

/// The kinds of groups of ranks.
enum class GroupKind {
  kWorld,
  kData,             ///< D ranks with different sequences, which hold equal dense parameters
  kExpert,           ///< E ranks that share the experts of a layer
  kExpertData,       ///< D / E ranks that hold equal experts
  kShard,            ///< `shard` ranks of kData: the inner part of hierarchical sharding
  kReplicate,        ///< `replicate` ranks of kData: its outer part
  kExpertShard,      ///< shard': ranks of kShard that hold equal experts
  kExpertReplicate,  ///< replicate': ranks of kReplicate that hold equal experts
  kBalance,          ///< consecutive data ranks whose sequences are one balance group (moe.balance_group)
  kTensor,           ///< ranks that share each matrix
  kPipeline,         ///< ranks that share the layers
  kModel,            ///< tensor × pipeline: ranks that share a data rank's sequences
  kKeyValue,         ///< ranks of kTensor that hold the same key and value heads; one rank if there are heads for all
  kTied,             ///< first and last rank of kPipeline if one table is embedding and output; otherwise one rank
};
inline constexpr std::array kGroupKinds = {
    GroupKind::kWorld,    GroupKind::kData,      GroupKind::kExpert,      GroupKind::kExpertData,
    GroupKind::kShard,    GroupKind::kReplicate, GroupKind::kExpertShard, GroupKind::kExpertReplicate,
    GroupKind::kBalance,  GroupKind::kTensor,    GroupKind::kPipeline,    GroupKind::kModel,
    GroupKind::kKeyValue, GroupKind::kTied};
const char* group_name(GroupKind kind);

class Layout {
 public:
  /// @throws ConfigError with every fault, a line each with its numbers, if the degrees do not fit `world_size`, the
  ///         model's experts or the batch (find_layout_faults).
  Layout(const RunConfig& config, int world_size);

  int world_size() const { return world_size_; }
  /// The degrees, with −1 resolved.
  int replicate() const { return replicate_; }
  int shard() const { return shard_; }
  int data() const { return replicate_ * shard_; }
  int expert() const { return expert_; }
  int tensor() const { return tensor_; }
  int pipeline() const { return pipeline_; }
  int expert_data() const { return data() / expert_; }

  /// Returns the position of a rank of the world along an axis, from 0.
  int coordinate(int rank, Axis axis) const;
  /// Returns the number of the rank among the data ranks that share its tensor and pipeline coordinates. It defines the
  /// order of sequences, of the members of groups and so of every sum. It depends on the coordinates alone, not on the
  /// mapping, which only assigns coordinates to ranks of the world. The coordinates are numbered row-major as
  /// ((replicate', shard'), e_r, e_s), so that an expert group has E consecutive numbers. With sharding = hierarchical
  /// the order is ((replicate', e_r), (shard', e_s)), so that a shard group has `shard` consecutive numbers. (Both
  /// orders are the same if E divides `shard`, or `shard` divides E.)
  int data_rank(int rank) const;

  /// Returns all groups of a kind, which partition the world. The members ascend by data rank. Exceptions: members of
  /// kTensor, kPipeline, kKeyValue and kTied share a data rank and ascend along the axis; those of kModel are ordered
  /// by pipeline, then tensor; those of kWorld are 0, 1, 2, ….
  std::vector<std::vector<int>> groups(GroupKind kind) const;
  /// Returns the ranks of the world that are in the same group as `rank`, itself included, in the order of groups().
  std::vector<int> group_of(GroupKind kind, int rank) const;
  /// Return the size of that group, and the rank's index in it from 0. They take constant time, unlike group_of.
  int group_size(GroupKind kind, int rank) const;
  int index_in_group(GroupKind kind, int rank) const;

  /// Returns the number of microbatches that a data rank computes in a step, with the configuration's batch size.
  int64_t microbatches() const { return microbatches_; }
  /// Returns the size of kBalance: the number of consecutive data ranks whose microbatches of the same index form one
  /// balance group. It is 1 if a group lies within a microbatch, or if nothing is balanced.
  int balance_ranks() const { return balance_ranks_; }
  /// Returns the first sequence, counted in the global batch, of microbatch `index` of a data rank; a microbatch has
  /// train.micro_batch_size sequences. A data rank's sequences are consecutive, so that its sum is a branch of the tree
  /// over the batch. If a balance group spans r ranks, these r ranks alternately take microbatches from one range.
  int64_t first_sequence(int data_rank, int64_t index) const;

 private:
  struct Place;  // position of a rank along each factor of an axis
  Place place_of(int rank) const;
  Place shared_place(GroupKind kind, int rank) const;
  int64_t number_of(const Place& place) const;
  void sort_members(GroupKind kind, std::vector<int>& group) const;

  int world_size_, replicate_, shard_, expert_, tensor_, pipeline_;
  int expert_shard_;  // e_s
  int key_value_;     // size of kKeyValue
  bool tied_;         // embedding and output are one table in two stages
  bool hierarchical_;
  int balance_ranks_;
  int64_t micro_batch_size_, microbatches_;
  std::array<int, kNumAxes> size_{}, stride_{};
};

/// Returns every mistake in the configuration's layout on `world_size` ranks, in each of its training phases, with
/// numbers and remedies; empty if there is none. Resolve a model that comes from a folder first: otherwise checks that
/// depend on it are skipped.
std::vector<std::string> find_layout_faults(const RunConfig& config, int world_size);

}  // namespace athanor::inline layout
