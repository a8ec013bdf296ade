#include "layout/layout.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "config/checks.h"
#include "config/mapping.h"
#include "layout/layout_faults.h"

namespace athanor::inline layout {
namespace {

size_t index_of(Axis axis) { return static_cast<size_t>(axis); }

}  // namespace

const char* axis_name(Axis axis) {
  switch (axis) {
    case Axis::kPipeline: return "pipeline";
    case Axis::kReplicate: return "replicate";
    case Axis::kShard: return "shard";
    case Axis::kExpert: return "expert";
    case Axis::kContext: return "context";
    case Axis::kTensor: return "tensor";
  }
  return "";
}

const char* group_name(GroupKind kind) {
  switch (kind) {
    case GroupKind::kWorld: return "world";
    case GroupKind::kData: return "data";
    case GroupKind::kExpert: return "expert";
    case GroupKind::kExpertData: return "expert_data";
    case GroupKind::kShard: return "shard";
    case GroupKind::kReplicate: return "replicate";
    case GroupKind::kExpertShard: return "expert_shard";
    case GroupKind::kExpertReplicate: return "expert_replicate";
    case GroupKind::kBalance: return "balance";
    case GroupKind::kTensor: return "tensor";
    case GroupKind::kPipeline: return "pipeline";
    case GroupKind::kModel: return "model";
    case GroupKind::kKeyValue: return "key_value";
    case GroupKind::kTied: return "tied";
  }
  return "";
}

Layout::Layout(const RunConfig& config, int world_size) : world_size_(world_size) {
  const auto faults = find_layout_faults(config, world_size);
  ATHANOR_CHECK(faults.empty(), "{}", join(faults, "\n"));
  const auto& p = config.parallelism;
  replicate_ = static_cast<int>(p.data_parallel_replicate_degree);
  shard_ = static_cast<int>(*resolve_shard_degree(p, world_size));
  expert_ = static_cast<int>(p.expert_parallel_degree);
  tensor_ = static_cast<int>(p.tensor_parallel_degree);
  pipeline_ = static_cast<int>(p.pipeline_parallel_degree);
  expert_shard_ = std::gcd(expert_, shard_);
  size_ = {pipeline_, replicate_ / (expert_ / expert_shard_), shard_ / expert_shard_, expert_, 1, tensor_};
  int stride = 1;
  const auto axes = axes_of(p.mapping);
  const auto names = axis_names();
  for (auto name = axes.rbegin(); name != axes.rend(); ++name) {
    const auto axis = static_cast<size_t>(std::ranges::find(names, *name) - names.begin());
    stride_[axis] = stride;
    stride *= size_[axis];
  }
  key_value_ =
      static_cast<int>(is_resolved(config.model) ? std::max<int64_t>(1, tensor_ / config.model.kv_heads()) : 1);
  tied_ = config.model.tie_word_embeddings && pipeline_ > 1;
  hierarchical_ = p.sharding == ShardingKind::kHierarchical;
  balance_ranks_ = static_cast<int>(count_balance_ranks(config));
  micro_batch_size_ = config.train.micro_batch_size;
  microbatches_ = config.train.global_batch_size / (data() * micro_batch_size_);
}

int Layout::coordinate(int rank, Axis axis) const {
  ATHANOR_ASSERT(0 <= rank && rank < world_size_);
  return rank / stride_[index_of(axis)] % size_[index_of(axis)];
}

int Layout::data_rank(int rank) const {
  const int expert = coordinate(rank, Axis::kExpert), expert_shard = expert % expert_shard_,
            expert_replicate = expert / expert_shard_;
  const int replicate = coordinate(rank, Axis::kReplicate), shard = coordinate(rank, Axis::kShard);
  const int num_shard = size_[index_of(Axis::kShard)], num_expert_replicate = expert_ / expert_shard_;
  if (hierarchical_) {
    return ((replicate * num_expert_replicate + expert_replicate) * num_shard + shard) * expert_shard_ + expert_shard;
  }
  return ((replicate * num_shard + shard) * num_expert_replicate + expert_replicate) * expert_shard_ + expert_shard;
}

struct Layout::Place {
  int pipeline = 0, replicate = 0, shard = 0, expert_replicate = 0, expert_shard = 0, tensor = 0, block = 0;
  auto operator<=>(const Place&) const = default;
};

Layout::Place Layout::place_of(int rank) const {
  const int expert = coordinate(rank, Axis::kExpert);
  return {.pipeline = coordinate(rank, Axis::kPipeline),
          .replicate = coordinate(rank, Axis::kReplicate),
          .shard = coordinate(rank, Axis::kShard),
          .expert_replicate = expert / expert_shard_,
          .expert_shard = expert % expert_shard_,
          .tensor = coordinate(rank, Axis::kTensor),
          .block = data_rank(rank) / balance_ranks_};
}

// Returns the coordinates that the members of a rank's group share; a coordinate in which they differ is 0.
Layout::Place Layout::shared_place(GroupKind kind, int rank) const {
  const Place at = place_of(rank);
  Place shared;
  shared.pipeline = at.pipeline, shared.tensor = at.tensor;
  switch (kind) {
    case GroupKind::kWorld: return {};
    case GroupKind::kData: return shared;
    case GroupKind::kExpert: shared.replicate = at.replicate, shared.shard = at.shard; return shared;
    case GroupKind::kExpertData:
      shared.expert_replicate = at.expert_replicate, shared.expert_shard = at.expert_shard;
      return shared;
    case GroupKind::kShard:
      shared.replicate = at.replicate, shared.expert_replicate = at.expert_replicate;
      return shared;
    case GroupKind::kReplicate: shared.shard = at.shard, shared.expert_shard = at.expert_shard; return shared;
    case GroupKind::kExpertShard:
      shared = at;
      shared.shard = shared.block = 0;
      return shared;
    case GroupKind::kExpertReplicate:
      shared = at;
      shared.replicate = shared.block = 0;
      return shared;
    case GroupKind::kBalance: shared.block = at.block; return shared;
    case GroupKind::kTensor:
      shared = at;
      shared.tensor = 0;
      return shared;
    case GroupKind::kPipeline:
      shared = at;
      shared.pipeline = 0;
      return shared;
    case GroupKind::kModel:
      shared = at;
      shared.pipeline = shared.tensor = 0;
      return shared;
    case GroupKind::kKeyValue:
      shared = at;
      shared.tensor = at.tensor / key_value_;
      return shared;
    case GroupKind::kTied:
      shared = at;
      if (tied_ && at.pipeline == pipeline_ - 1) shared.pipeline = 0;
      return shared;
  }
  return shared;
}

std::vector<std::vector<int>> Layout::groups(GroupKind kind) const {
  std::vector<std::vector<int>> groups;
  std::unordered_map<int64_t, size_t> number;
  for (int rank = 0; rank < world_size_; ++rank) {
    const auto [found, is_new] = number.try_emplace(number_of(shared_place(kind, rank)), groups.size());
    if (is_new) groups.emplace_back();
    groups[found->second].push_back(rank);
  }
  for (auto& group : groups) sort_members(kind, group);
  return groups;
}

std::vector<int> Layout::group_of(GroupKind kind, int rank) const {
  const Place shared = shared_place(kind, rank);
  std::vector<int> group;
  for (int other = 0; other < world_size_; ++other) {
    if (shared_place(kind, other) == shared) group.push_back(other);
  }
  sort_members(kind, group);
  return group;
}

int Layout::group_size(GroupKind kind, int rank) const {
  const int pipeline = coordinate(rank, Axis::kPipeline);
  switch (kind) {
    case GroupKind::kWorld: return world_size_;
    case GroupKind::kData: return data();
    case GroupKind::kExpert: return expert_;
    case GroupKind::kExpertData: return expert_data();
    case GroupKind::kShard: return shard_;
    case GroupKind::kReplicate: return replicate_;
    case GroupKind::kExpertShard: return size_[index_of(Axis::kShard)];
    case GroupKind::kExpertReplicate: return size_[index_of(Axis::kReplicate)];
    case GroupKind::kBalance: return balance_ranks_;
    case GroupKind::kTensor: return tensor_;
    case GroupKind::kPipeline: return pipeline_;
    case GroupKind::kModel: return pipeline_ * tensor_;
    case GroupKind::kKeyValue: return key_value_;
    case GroupKind::kTied: return tied_ && (pipeline == 0 || pipeline == pipeline_ - 1) ? 2 : 1;
  }
  return 1;
}

int Layout::index_in_group(GroupKind kind, int rank) const {
  const Place at = place_of(rank);
  switch (kind) {
    case GroupKind::kWorld: return rank;
    case GroupKind::kData: return data_rank(rank);
    case GroupKind::kExpert: return coordinate(rank, Axis::kExpert);
    case GroupKind::kExpertData: return at.replicate * size_[index_of(Axis::kShard)] + at.shard;
    case GroupKind::kShard: return at.shard * expert_shard_ + at.expert_shard;
    case GroupKind::kReplicate: return at.replicate * (expert_ / expert_shard_) + at.expert_replicate;
    case GroupKind::kExpertShard: return at.shard;
    case GroupKind::kExpertReplicate: return at.replicate;
    case GroupKind::kBalance: return data_rank(rank) % balance_ranks_;
    case GroupKind::kTensor: return at.tensor;
    case GroupKind::kPipeline: return at.pipeline;
    case GroupKind::kModel: return at.pipeline * tensor_ + at.tensor;
    case GroupKind::kKeyValue: return at.tensor % key_value_;
    case GroupKind::kTied: return tied_ && at.pipeline == pipeline_ - 1 ? 1 : 0;
  }
  return 0;
}

// The product of the sizes is the world's size, so nothing overflows.
int64_t Layout::number_of(const Place& p) const {
  const auto size = [&](Axis axis) { return int64_t{size_[index_of(axis)]}; };
  int64_t number = p.pipeline;
  number = number * size(Axis::kReplicate) + p.replicate;
  number = number * size(Axis::kShard) + p.shard;
  number = number * (expert_ / expert_shard_) + p.expert_replicate;
  number = number * expert_shard_ + p.expert_shard;
  number = number * size(Axis::kTensor) + p.tensor;
  return number * data() + p.block;
}

// Expects ascending ranks.
void Layout::sort_members(GroupKind kind, std::vector<int>& group) const {
  if (kind == GroupKind::kWorld || group.size() == 1) return;
  std::vector<std::pair<int64_t, int>> ordered;
  ordered.reserve(group.size());
  for (const int rank : group) {
    const int64_t place = int64_t{data_rank(rank)} * pipeline_ + coordinate(rank, Axis::kPipeline);
    ordered.emplace_back(place * tensor_ + coordinate(rank, Axis::kTensor), rank);
  }
  std::ranges::sort(ordered);
  std::ranges::transform(ordered, group.begin(), &std::pair<int64_t, int>::second);
}

int64_t Layout::first_sequence(int data_rank, int64_t index) const {
  ATHANOR_ASSERT(0 <= data_rank && data_rank < data() && 0 <= index && index < microbatches_);
  const int64_t block = data_rank / balance_ranks_, in_block = data_rank % balance_ranks_;
  return ((block * microbatches_ + index) * balance_ranks_ + in_block) * micro_batch_size_;
}

}  // namespace athanor::inline layout
