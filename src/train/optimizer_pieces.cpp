#include "train/optimizer_pieces.h"

#include <algorithm>

#include "ops/transfer.h"

namespace athanor::inline train {
namespace {

using Extent = StateKind::Extent;

// fp32 on the host is written and read where it lies; everything else passes through a copy.
PieceView piece_of(std::string tensor, Slice slice, const Tensor& values) {
  if (float* data = ops::fp32_on_host(values)) return {std::move(tensor), std::move(slice), data};
  const auto part = [values](int64_t first, int64_t count) { return values.narrow(0, first, count).to(at::kFloat); };
  const auto read = [part](int64_t first, std::span<float> out) {
    ops::fetch_bytes(part(first, std::ssize(out)), out.data());
  };
  return {std::move(tensor), std::move(slice), nullptr, read, ops::FetchAside::copies_of(values, part)};
}

TargetView target_of(std::string tensor, Slice slice, const Tensor& values) {
  if (float* data = ops::fp32_on_host(values)) return {std::move(tensor), std::move(slice), data};
  return {std::move(tensor), std::move(slice), nullptr, [values](int64_t first, std::span<const float> in) {
            const Tensor part = at::empty({std::ssize(in)}, values.options().dtype(at::kFloat));
            ops::send_bytes(part, in.data());
            values.narrow(0, first, std::ssize(in)).copy_(part);
          }};
}

// The matrices of an entry that are held here, of all matrices of the parameter.
Slice matrices_of(const BucketEntry& entry) {
  const int64_t all = count_matrices(entry.replication, entry.global_shape),
                here = count_matrices(entry.replication, entry.extent);
  return box_slice({all}, {all > 1 ? entry.offset.front() : 0}, {here});
}

Tensor matrix_values(const Optimizer& optimizer, const HeldState& held, const BucketEntry& entry) {
  return held.values.narrow(0, optimizer.parameters().first_matrix(entry),
                            count_matrices(entry.replication, entry.extent));
}

// One rank of those that hold a part of these matrices: it counts the first element of the first row and column.
bool writes_matrices(const BucketEntry& entry, FlatRange canonical) {
  if (canonical.begin != entry.flat_begin) return false;
  const auto first = entry.offset.begin() + (count_matrices(entry.replication, entry.global_shape) > 1 ? 1 : 0);
  return std::all_of(first, entry.offset.end(), [](int64_t offset) { return offset == 0; });
}

bool updates(const Optimizer& optimizer, const BucketEntry& entry) {
  return std::ranges::find(optimizer.parameters().entries(), &entry) != optimizer.parameters().entries().end();
}

void add_pieces_of_kind(const Optimizer& optimizer, const HeldState& held, const BucketEntry& entry, FlatRange range,
                        std::vector<PieceView>& pieces) {
  const std::string name = held.kind.tensor_name(entry.name);
  if (held.kind.extent == Extent::kElement) {
    const int64_t begin = optimizer.parameters().state_begin(range).value();
    pieces.push_back(piece_of(name, slice_of(entry, range), held.values.narrow(0, begin, range.size())));
  } else if (writes_matrices(entry, range)) {
    pieces.push_back(piece_of(name, matrices_of(entry), matrix_values(optimizer, held, entry)));
  }
}

}  // namespace

Slice slice_of(const BucketEntry& entry, FlatRange range) {
  Slice slice = box_slice(entry.global_shape, entry.offset, entry.extent);
  slice.flat_begin = range.begin - entry.flat_begin;
  slice.flat_end = range.end - entry.flat_begin;
  return slice;
}

void add_optimizer_pieces(const OptimizerSet& set, const Mesh& mesh, std::span<const EntryPart> written,
                          std::vector<PieceView>& pieces) {
  for (const auto& optimizer : set.optimizers()) {
    for (const HeldState& held : optimizer->state()) {
      if (held.kind.extent == Extent::kScalar) {
        if (mesh.is_first()) pieces.push_back(piece_of(held.kind.tensor_name(""), whole_slice({1}), held.values));
        continue;
      }
      for (const auto& [entry, range] : written)
        if (updates(*optimizer, *entry)) add_pieces_of_kind(*optimizer, held, *entry, range, pieces);
    }
  }
}

void add_element_targets(const OptimizerSet& set, const BucketEntry& entry, FlatRange owned,
                         std::vector<TargetView>& targets) {
  for (const auto& optimizer : set.optimizers()) {
    const auto begin = optimizer->parameters().state_begin(owned);
    for (const HeldState& held : optimizer->state()) {
      if (!begin || held.kind.extent != Extent::kElement) continue;
      targets.push_back(target_of(held.kind.tensor_name(entry.name), slice_of(entry, owned),
                                  held.values.narrow(0, *begin, owned.size())));
    }
  }
}

void add_whole_targets(const OptimizerSet& set, const std::function<bool(const BucketEntry&)>& reads,
                       std::vector<TargetView>& targets) {
  for (const auto& optimizer : set.optimizers()) {
    for (const HeldState& held : optimizer->state()) {
      if (held.kind.extent == Extent::kScalar)
        targets.push_back(target_of(held.kind.tensor_name(""), whole_slice({1}), held.values));
      if (held.kind.extent != Extent::kMatrix) continue;
      for (const BucketEntry* entry : optimizer->parameters().entries()) {
        if (!reads(*entry)) continue;
        targets.push_back(target_of(held.kind.tensor_name(entry->name), matrices_of(*entry),
                                    matrix_values(*optimizer, held, *entry)));
      }
    }
  }
}

void zero_state_of(const OptimizerSet& set, const BucketEntry& entry) {
  for_each_owned_state(set, entry.range(), [](const Tensor& values) { values.zero_(); });
  for (const auto& optimizer : set.optimizers()) {
    for (const HeldState& held : optimizer->state())
      if (held.kind.extent == Extent::kMatrix && updates(*optimizer, entry))
        matrix_values(*optimizer, held, entry).zero_();
  }
}

void for_each_owned_state(const OptimizerSet& set, FlatRange range, const std::function<void(const Tensor&)>& visit) {
  for (const auto& optimizer : set.optimizers()) {
    for (const HeldState& held : optimizer->state()) {
      if (held.kind.extent != Extent::kElement) continue;
      for (const OwnedRange& owned : optimizer->parameters().owned()) {
        const FlatRange common = intersect(range, owned.flat);
        if (common.size() > 0)
          visit(held.values.narrow(0, owned.state_begin + common.begin - owned.flat.begin, common.size()));
      }
    }
  }
}

}  // namespace athanor::inline train
