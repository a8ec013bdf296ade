#include "layout/home_plan.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

#include "base/error.h"
#include "layout/optimizer_state.h"

namespace athanor::inline layout {
namespace {

// The data ranks of a stage, and which of them own each shard of a replication kind.
class DataRanks {
 public:
  explicit DataRanks(const HomePlanInput& input) : input_(input) {
    ranks_ = input.layout.group_of(GroupKind::kData, input.rank);
    for (const int rank : ranks_) expert_.push_back(input.layout.index_in_group(GroupKind::kExpert, rank));
  }

  int size() const { return static_cast<int>(ranks_.size()); }
  int expert_rank(int index) const { return expert_[static_cast<size_t>(index)]; }

  struct Owners {
    int64_t shards = 1;
    std::vector<std::vector<int>> of_shard;  // data ranks, ascending
  };
  // The owners of experts are those among the ranks that hold the same experts as this rank.
  const Owners& owners(Replication replication) {
    const auto [found, is_new] = owners_.try_emplace(replication);
    Owners& owners = found->second;
    if (!is_new) return owners;
    const int own = input_.layout.index_in_group(GroupKind::kExpert, input_.rank);
    for (int d = 0; d < size(); ++d) {
      if (replication.is_expert() && expert_rank(d) != own) continue;
      const Shards shards = shards_of(input_.layout, ranks_[static_cast<size_t>(d)], input_.sharding, replication);
      owners.shards = shards.shards;
      owners.of_shard.resize(static_cast<size_t>(shards.shards));
      owners.of_shard[static_cast<size_t>(shards.owned_shard)].push_back(d);
    }
    return owners;
  }

 private:
  const HomePlanInput& input_;
  std::vector<int> ranks_, expert_;
  std::map<Replication, Owners> owners_;
};

class Planner {
 public:
  explicit Planner(const HomePlanInput& input) : input_(input), data_(input) {
    plan_.data_index = input.layout.index_in_group(GroupKind::kData, input.rank);
    plan_.tensor_index = input.layout.index_in_group(GroupKind::kTensor, input.rank);
  }

  HomePlan make() {
    collect();
    assign();
    for (size_t m = 0; m < plan_.matrices.size(); ++m) {
      add_data_transfers(m);
      add_tensor_transfers(m);
    }
    // All messages of a pair lie one after the other.
    const auto by_peer = [](std::vector<HomeTransfer>& transfers) {
      std::ranges::stable_sort(transfers, [](const HomeTransfer& a, const HomeTransfer& b) {
        return std::tie(a.from, a.to) < std::tie(b.from, b.to);
      });
    };
    for (auto* each : {&plan_.to_home_data, &plan_.to_home_tensor, &plan_.from_home_tensor, &plan_.from_home_data})
      by_peer(*each);
    return std::move(plan_);
  }

 private:
  int tensor() const { return input_.layout.tensor(); }

  // Lists the matrices of the whole stage, since every rank has to find the same homes, and notes those held here.
  void collect() {
    candidates_.resize(static_cast<size_t>(1 + input_.layout.expert()));
    for (int d = 0; d < data_.size(); ++d) {
      for (int t = 0; t < tensor(); ++t) {
        candidates_[0].push_back(d * tensor() + t);
        candidates_[static_cast<size_t>(1 + data_.expert_rank(d))].push_back(d * tensor() + t);
      }
    }
    for (const BucketEntry& entry : input_.table) {
      if (!input_.selects(entry)) continue;
      const size_t dim = first_matrix_dim(entry);
      ATHANOR_ASSERT(entry.global_shape.size() == dim + 2);
      HomeMatrix matrix{&entry, {}, entry.global_shape[dim], entry.global_shape[dim + 1], cut_dim_of_matrix(entry), {}};
      if (matrix.cut_dim >= 0) matrix.parts = parts_of_tensor_ranks(entry, tensor());
      const double work = home_work(matrix.rows, matrix.columns);
      const int64_t stacked = dim == 0 ? 1 : entry.global_shape[0],
                    here = count_matrices(entry.replication, entry.extent), first = dim == 0 ? 0 : entry.offset[0];
      for (int64_t m = 0; m < stacked; ++m) {
        jobs_.push_back({work, entry.replication.is_expert() ? static_cast<size_t>(1 + m / here) : 0});
        held_.push_back(m >= first && m < first + here);
        if (!held_.back()) continue;
        matrix.held = part_of(entry.range(), here, m - first);
        plan_.matrices.push_back(matrix);
      }
    }
  }

  void assign() {
    const std::vector<int> homes = assign_homes(jobs_, candidates_);
    plan_.work.resize(candidates_[0].size());
    size_t next = 0;
    for (size_t j = 0; j < jobs_.size(); ++j) {
      plan_.work[static_cast<size_t>(homes[j])] += jobs_[j].work;
      if (!held_[j]) continue;
      HomeMatrix& matrix = plan_.matrices[next++];
      matrix.home_data = homes[j] / tensor();
      matrix.home_tensor = homes[j] % tensor();
    }
  }

  const Bucket& bucket_of(const BucketEntry& entry) const {
    const auto found = std::ranges::upper_bound(input_.buckets, entry.flat_begin, {},
                                                [](const Bucket& bucket) { return bucket.range.begin; });
    return *(found - 1);
  }

  // A piece is sent by one of its owners unless the home owns it, and comes back to all of them.
  void add_data_transfers(size_t index) {
    const HomeMatrix& matrix = plan_.matrices[index];
    const Bucket& bucket = bucket_of(*matrix.entry);
    const auto& owners = data_.owners(bucket.replication);
    const int64_t size = bucket.range.size() / owners.shards;
    const int home = matrix.home_data, own = plan_.data_index;
    for (int64_t s = (matrix.held.begin - bucket.range.begin) / size; s < owners.shards; ++s) {
      const FlatRange piece = intersect(part_of(bucket.range, owners.shards, s), matrix.held);
      if (piece.size() <= 0) break;
      const auto& of_shard = owners.of_shard[static_cast<size_t>(s)];
      const bool is_there = std::ranges::find(of_shard, home) != of_shard.end();
      const int sender = of_shard[static_cast<size_t>(home) % of_shard.size()];
      if (!is_there && matrix.takes_part_of(plan_.tensor_index) && (sender == own || home == own))
        plan_.to_home_data.push_back({sender, home, index, piece});
      for (const int owner : of_shard) {
        if (owner != home && (owner == own || home == own)) plan_.from_home_data.push_back({home, owner, index, piece});
      }
    }
  }

  void add_tensor_transfers(size_t index) {
    const HomeMatrix& matrix = plan_.matrices[index];
    const int home = matrix.home_tensor, own = plan_.tensor_index;
    if (matrix.home_data != plan_.data_index) return;
    for (int t = 0; t < tensor(); ++t) {
      if (t == home || (t != own && home != own)) continue;
      if (matrix.takes_part_of(t)) plan_.to_home_tensor.push_back({t, home, index});
      plan_.from_home_tensor.push_back({home, t, index});
    }
  }

  const HomePlanInput& input_;
  DataRanks data_;
  HomePlan plan_;
  std::vector<HomeJob> jobs_;
  std::vector<bool> held_;  // by job
  std::vector<std::vector<int>> candidates_;
};

}  // namespace

double home_work(int64_t rows, int64_t columns) {
  const auto small = static_cast<double>(std::min(rows, columns)), large = static_cast<double>(std::max(rows, columns));
  return large * small * small;
}

std::vector<int> assign_homes(const std::vector<HomeJob>& jobs, const std::vector<std::vector<int>>& candidates) {
  std::vector<size_t> order(jobs.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return jobs[a].work > jobs[b].work; });
  int ranks = 0;
  for (const auto& list : candidates)
    for (const int rank : list) ranks = std::max(ranks, rank + 1);
  std::vector<double> load(static_cast<size_t>(ranks));
  std::vector<int> homes(jobs.size());
  for (const size_t job : order) {
    const auto& list = candidates[jobs[job].candidates];
    const int home = *std::ranges::min_element(list, {}, [&](int rank) { return load[static_cast<size_t>(rank)]; });
    load[static_cast<size_t>(home)] += jobs[job].work;
    homes[job] = home;
  }
  return homes;
}

size_t first_matrix_dim(const BucketEntry& entry) {
  return entry.replication.is_expert() || entry.global_shape.size() > 2 ? 1 : 0;
}

int cut_dim_of_matrix(const BucketEntry& entry) {
  const size_t first = first_matrix_dim(entry);
  for (size_t d = first; d < entry.extent.size(); ++d) {
    if (entry.extent[d] != entry.global_shape[d]) return static_cast<int>(d - first);
  }
  return -1;
}

std::vector<TensorPart> parts_of_tensor_ranks(const BucketEntry& entry, int ranks) {
  const int cut = cut_dim_of_matrix(entry);
  if (cut < 0) return {};
  const size_t dim = first_matrix_dim(entry) + static_cast<size_t>(cut);
  const int64_t whole = entry.global_shape[dim];
  // Fewer key heads than ranks: neighbours hold the same one.
  const int64_t different = entry.replication == Replication::kKeyValue ? whole / entry.extent[dim] : ranks;
  std::vector<TensorPart> parts;
  for (int r = 0; r < ranks; ++r) {
    const int64_t index = r * different / ranks, begin = whole * index / different;
    parts.push_back({begin, whole * (index + 1) / different - begin});
  }
  return parts;
}

bool HomeMatrix::takes_part_of(int tensor_rank) const {
  if (cut_dim < 0) return tensor_rank == home_tensor;
  const TensorPart& part = parts[static_cast<size_t>(tensor_rank)];
  if (part == parts[static_cast<size_t>(home_tensor)]) return tensor_rank == home_tensor;
  return std::ranges::find(parts, part) - parts.begin() == tensor_rank;
}

std::array<int64_t, 2> HomeMatrix::part_shape(int tensor_rank) const {
  std::array<int64_t, 2> shape{rows, columns};
  if (cut_dim >= 0) shape[static_cast<size_t>(cut_dim)] = parts[static_cast<size_t>(tensor_rank)].size;
  return shape;
}

int64_t HomePlan::home_elements() const {
  int64_t elements = 0;
  for (const HomeMatrix& matrix : matrices) elements += is_home(matrix) ? matrix.rows * matrix.columns : 0;
  return elements;
}

HomePlan plan_homes(const HomePlanInput& input) { return Planner(input).make(); }

}  // namespace athanor::inline layout
