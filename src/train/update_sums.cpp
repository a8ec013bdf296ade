#include "train/update_sums.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>

#include "arch/inventory.h"
#include "ops/master.h"
#include "optim/muon.h"
#include "train/state_pieces.h"

namespace athanor::inline train {
namespace {

// Columns of the sums of a parameter: numbers of elements, the sum of moves, and the squares of directions.
enum UpdateColumn : int64_t {
  kUpdated,
  kLost,
  kStill,
  kMoves,
  kWithMoment,
  kUnderflown,
  kNotFinite,
  kSquares,
  kNumUpdateColumns
};

constexpr double kLeastNormal = std::numeric_limits<float>::min();

// fp32, with the memory of the weights in fp32.
Tensor master_of(const ops::UpdateMemory& memory) {
  return memory.master_low.defined() ? ops::join_master(memory.weight, memory.master_low) : memory.weight;
}

// The part of the way from each master's value in bf16 to the next one that an update goes; at most 1. The spacing of
// bf16 in [2^e, 2^(e + 1)) is 2^(e − 7).
Tensor moves_of(const Tensor& before, const Tensor& after) {
  const Tensor power = before.view(at::kInt).bitwise_and(0x7f800000).view(at::kFloat).clamp_min(kLeastNormal);
  return (after - before).abs_().div_(power.mul_(0x1p-7)).clamp_max_(1);
}

Tensor not_finite_of(const Tensor& values) { return at::isfinite(values).logical_not_().sum(); }

double share_of(double part, double whole) { return whole > 0 ? part / whole : 0; }

const Optimizer* optimizer_of(const OptimizerSet& set, const BucketEntry& entry) {
  const std::string& name = group_of(set.plan().groups, entry.name, entry.role).optimizer;
  for (const auto& each : set.optimizers())
    if (each->declaration().name == name) return each.get();
  return nullptr;
}

// The norm that a parameter's directions have if all of its matrices are orthogonal, as Muon scales them.
double orthogonal_norm(const ParameterSpec& spec, const OptimizerConfig& config) {
  const int64_t rows = spec.shape.at(spec.shape.size() - 2), columns = spec.shape.back();
  const auto rank = static_cast<double>(count_matrices(spec) * std::min(rows, columns));
  return muon_scale(config.muon_scale, rows, columns) * std::sqrt(rank);
}

}  // namespace

UpdateSums::UpdateSums(const TrainState& state, UpdateObserver* also) : state_(state), also_(also) {
  std::map<std::string, int64_t> row_of;
  for (const ParameterSpec& spec : make_inventory(state.config.model)) row_of.emplace(spec.name, std::ssize(row_of));
  for (const auto& [entry, range] : canonical_parts(state.model))
    pieces_.push_back({range, row_of.at(entry->name), optimizer_of(state.optimizer.set, *entry)});
  sums_ =
      at::zeros({std::ssize(row_of), kNumUpdateColumns}, at::TensorOptions(at::kDouble).device(state.model.device()));
}

void UpdateSums::add(int64_t row, int64_t column, const Tensor& sum) { sums_[row][column].add_(sum); }

void UpdateSums::before_update(FlatRange range) {
  if (also_) also_->before_update(range);
  const at::NoGradGuard no_grad;
  before_.clear();
  for_each_piece_in(pieces_, range, [&](FlatRange here, const Piece& piece) {
    const ops::UpdateMemory memory = update_memory(state_.model.parameters, here);
    const Tensor weight = memory.weight.clone();
    before_.push_back({memory.master_low.defined() ? master_of(memory) : weight, weight, memory.grad.ne(0)});
    if (piece.optimizer && piece.optimizer->declaration().name == "muon")
      add(piece.row, kSquares, at::linalg_vector_norm(memory.grad, 2, {}, false, at::kDouble).square());
  });
}

void UpdateSums::after_update(FlatRange range) {
  const at::NoGradGuard no_grad;
  auto before = before_.begin();
  for_each_piece_in(pieces_, range, [&](FlatRange here, const Piece& piece) {
    const auto& [old_master, old_weight, has_update] = *before++;
    const ops::UpdateMemory memory = update_memory(state_.model.parameters, here);
    const Tensor master = master_of(memory);
    add(piece.row, kUpdated, has_update.sum());
    add(piece.row, kLost, master.eq(old_master).logical_and_(has_update).sum());
    add(piece.row, kNotFinite, not_finite_of(master));
    if (memory.master_low.defined()) {
      add(piece.row, kStill, memory.weight.eq(old_weight).logical_and_(has_update).sum());
      add(piece.row, kMoves, moves_of(old_master, master).mul_(has_update).sum(at::kDouble));
    }
    if (piece.optimizer) read_state(piece, here);
  });
  if (also_) also_->after_update(range);
}

void UpdateSums::read_state(const Piece& piece, FlatRange range) {
  const int64_t begin = piece.optimizer->parameters().state_begin(range).value();
  Tensor first, second;
  for (const HeldState& held : piece.optimizer->state()) {
    if (held.kind.extent != StateKind::Extent::kElement) continue;
    const Tensor values = held.values.narrow(0, begin, range.size());
    add(piece.row, kNotFinite, not_finite_of(values));
    if (held.kind.name == "exp_avg") first = values;
    if (held.kind.name == "exp_avg_sq") second = values;
  }
  if (!first.defined() || !second.defined()) return;
  const Tensor has_moment = first.abs().ge_(kLeastNormal).to(at::kBool);
  add(piece.row, kWithMoment, has_moment.sum());
  add(piece.row, kUnderflown, second.lt(kLeastNormal).logical_and_(has_moment).sum());
}

std::vector<Tensor*> UpdateSums::numbers() {
  std::vector<Tensor*> all = {&sums_};
  if (also_) std::ranges::copy(also_->numbers(), std::back_inserter(all));
  return all;
}

std::vector<ParameterUpdate> UpdateSums::take(double lr) {
  state_.model.mesh.host_group(GroupKind::kWorld).all_reduce(sums_).wait();
  const auto sums = sums_.accessor<double, 2>();
  const OptimizerPlan& plan = state_.optimizer.set.plan();
  std::vector<ParameterUpdate> updates;
  for (const ParameterSpec& spec : make_inventory(state_.config.model)) {
    const auto row = sums[std::ssize(updates)];
    ParameterUpdate update{.name = spec.name};
    const ParameterGroup& group = group_of(plan.groups, spec.name, spec.role);
    if (lr * group.lr_scale > 0) {
      update.lost_share = share_of(row[kLost], row[kUpdated]);
      update.still_share = share_of(row[kStill], row[kUpdated]);
      if (state_.model.parameters.master_low().defined() && row[kUpdated] > 0)
        update.updates_per_move = row[kUpdated] / row[kMoves];
    }
    update.underflow_share = share_of(row[kUnderflown], row[kWithMoment]);
    update.not_finite = row[kNotFinite];
    if (group.optimizer == "muon")
      update.orthogonality = std::sqrt(row[kSquares]) / orthogonal_norm(spec, state_.config.optimizer);
    updates.push_back(std::move(update));
  }
  return updates;
}

double count_update_sums_bytes(const ParameterStore& parameters, const ShardPlan& plan) {
  const bool bf16 = parameters.master_low().defined();
  const double copied = bf16 ? 7 : 5, results = bf16 ? 16 : 10;
  const std::vector<EntryPart> pieces = canonical_parts(parameters, plan);
  double most = 0;
  const auto add_range = [&](FlatRange range) {
    for (int64_t begin = range.begin; begin < range.end; begin += kUpdateBlock) {
      int64_t elements = 0, largest = 0;
      for_each_piece_in(
          pieces, {begin, std::min(range.end, begin + kUpdateBlock)},
          [&](FlatRange here, const EntryPart&) { elements += here.size(), largest = std::max(largest, here.size()); });
      most = std::max(most, copied * static_cast<double>(elements) + results * static_cast<double>(largest));
    }
  };
  if (plan.is_trivial()) {
    add_range({0, parameters.flat_size()});
  } else {
    for (const Bucket& bucket : parameters.buckets()) add_range(bucket.range);
  }
  return most;
}

}  // namespace athanor::inline train
