#pragma once
// How the ranks of a job share a model: named axes, and the groups of ranks that follow from them. Plain arithmetic, so
// that plan, dry runs and tests ask the same questions as training.
//
// D = replicate × shard data ranks; the expert degree E divides D. E is cut in e_s = gcd(E, shard), which lies within
// the shard axis, and e_r = E / e_s, which lies within the replicate axis. What is left of those two are the axes
// replicate and shard of the list below, so that every group is a product of axes:
//   pipeline | replicate' = replicate / e_r | shard' = shard / e_s | expert = e_r × e_s | context (1) | tensor
// `mapping` says which axes vary fastest over ranks: expert_inner = the order above; data_inner (MoDa, BaGuaLu §4.2)
// puts expert outside of replicate' and shard': data parallelism among neighbours, all-to-all between supernodes.

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "config/run_config.h"

namespace athanor {

enum class Axis { kPipeline, kReplicate, kShard, kExpert, kContext, kTensor };
inline constexpr int kNumAxes = 6;
const char* axis_name(Axis axis);

/// Which ranks work together.
enum class GroupKind {
  kWorld,
  kData,             ///< D: ranks with sequences of their own, that hold equal dense parameters
  kExpert,           ///< E: ranks that share the experts of a layer
  kExpertData,       ///< D / E: ranks that hold equal experts
  kShard,            ///< `shard` ranks of kData: the inner part of hierarchical sharding
  kReplicate,        ///< `replicate` ranks of kData: its outer part
  kExpertShard,      ///< shard': ranks of kShard that hold equal experts
  kExpertReplicate,  ///< replicate': ranks of kReplicate that hold equal experts
  kBalance,          ///< consecutive data ranks whose sequences are one balance group
  kTensor,           ///< ranks that share each matrix
  kPipeline,         ///< ranks that share the layers
  kModel,            ///< tensor × pipeline: ranks that share a data rank's sequences
  kKeyValue,         ///< ranks of kTensor that hold the same key and value heads: alone where there are heads for all
  kTied,             ///< first and last rank of kPipeline, where one table is embedding and output; otherwise alone
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
  /// Degrees as resolved (no −1 left).
  int replicate() const { return replicate_; }
  int shard() const { return shard_; }
  int data() const { return replicate_ * shard_; }
  int expert() const { return expert_; }
  int tensor() const { return tensor_; }
  int pipeline() const { return pipeline_; }
  int expert_data() const { return data() / expert_; }

  /// Position of a rank along an axis.
  int coordinate(int rank, Axis axis) const;
  /// Number of the rank among the data ranks that share its tensor and pipeline coordinates: the order of sequences, of
  /// groups' members and so of every sum. It comes from coordinates alone, whatever the mapping, which only says where
  /// in the world these coordinates are: ((replicate', shard'), e_r, e_s), row-major, so that an expert group is D /
  /// E's consecutive run of E; with sharding = hierarchical ((replicate', e_r), (shard', e_s)), so that a shard group
  /// is a consecutive run of `shard`. (Both are the same where E divides `shard`, or `shard` divides E.)
  int data_rank(int rank) const;

  /// All groups of a kind, a partition of the world. Members ascend by data rank (in kTensor, kPipeline, kKeyValue
  /// and kTied, whose members share it: along the axis; in kModel: pipeline, then tensor; in kWorld: they are 0, 1, 2,
  /// …).
  std::vector<std::vector<int>> groups(GroupKind kind) const;
  /// The one `rank` is in.
  std::vector<int> group_of(GroupKind kind, int rank) const;

  /// How many microbatches a data rank runs in a step.
  int64_t microbatches() const { return microbatches_; }
  /// Consecutive data ranks whose microbatches `index` are one balance group: the size of kBalance; 1 where a group is
  /// within a microbatch, or nothing is balanced.
  int balance_ranks() const { return balance_ranks_; }
  /// Where in the global batch microbatch `index` of a data rank begins; it has train.micro_batch_size sequences.
  /// A data rank's sequences stand together, so that its sum is a branch of the tree over the batch; where a balance
  /// group spans r ranks, these r ranks take theirs in turn from one range.
  int64_t first_sequence(int data_rank, int64_t index) const;

 private:
  struct Place;  // of a rank, along each factor of an axis
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

/// Every fault of the configuration's layout on `world_size` ranks, in each of its stages, with numbers and remedies;
/// none: empty. A model that comes from a folder is to be resolved before; what depends on it is passed over otherwise.
std::vector<std::string> find_layout_faults(const RunConfig& config, int world_size);

}  // namespace athanor
