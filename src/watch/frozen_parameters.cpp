#include "watch/frozen_parameters.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "config/due.h"
#include "ops/transfer.h"
#include "parallel/share.h"
#include "train/stopwatches.h"

namespace athanor::inline watch {

// Returns a number for each parameter of the table, over the elements that this rank owns; 0 if it owns none.
std::vector<int64_t> FrozenParameters::fingerprints() {
  const SecondsInto spent(seconds_);
  const at::NoGradGuard no_grad;
  state_.model.gatherer.wait_all();
  const ParameterStore& parameters = state_.model.parameters;
  std::vector<Tensor> parts;
  std::vector<size_t> of;
  for (size_t p = 0; p < parameters.table().size(); ++p) {
    parameters.for_each_owned(parameters.table()[p].range(), [&](FlatRange owned, int64_t index) {
      parts.push_back(hasher_->fingerprint(parameters.compute().narrow(0, owned.begin, owned.size())));
      if (parameters.master_low().defined())
        parts.push_back(hasher_->fingerprint(parameters.master_low().narrow(0, index, owned.size())));
      of.resize(parts.size(), p);
    });
  }
  std::vector<int64_t> found(parameters.table().size(), 0);
  if (parts.empty()) return found;
  const Tensor here = ops::fetch(at::stack(parts));
  for (size_t i = 0; i < of.size(); ++i) {  // the parts' order counts
    uint64_t& sum = reinterpret_cast<uint64_t&>(found[of[i]]);
    sum = sum * 0x9E3779B97F4A7C15u + static_cast<uint64_t>(here.const_data_ptr<int64_t>()[i]);
  }
  return found;
}

// Makes `moved` true on all ranks that hold a parameter if it is on one. Collective over the group.
void FrozenParameters::reduce(Tensor moved, GroupKind kind, bool experts) const {
  comm::Communicator& group = state_.model.mesh.host_group(kind);
  if (group.size() == 1) return;
  const auto& table = state_.model.parameters.table();
  std::vector<int64_t> rows;
  for (size_t p = 0; p < table.size(); ++p)
    if (table[p].replication.is_expert() == experts) rows.push_back(static_cast<int64_t>(p));
  if (rows.empty()) return;
  const Tensor index = at::tensor(rows, at::kLong), held = moved.index_select(0, index);
  group.all_reduce(held, comm::Reduction::kMax).wait();
  moved.index_copy_(0, index, held);
}

std::vector<std::string> FrozenParameters::after_update(int64_t step, double lr) {
  largest_lr_ = std::max(largest_lr_, lr);
  if (!is_due(step, interval_)) return {};
  const std::vector<int64_t> before = std::exchange(before_, fingerprints());
  const bool could_move = std::exchange(largest_lr_, 0) > 0;
  if (before.empty() || !could_move) return {};
  const auto& table = state_.model.parameters.table();
  const Tensor moved = at::empty({std::ssize(table)}, at::kLong);
  auto* flags = moved.data_ptr<int64_t>();
  for (size_t p = 0; p < table.size(); ++p) flags[p] = before[p] != before_[p];
  reduce(moved, GroupKind::kData, /*experts=*/false);
  reduce(moved, GroupKind::kExpertData, /*experts=*/true);
  std::set<std::string> frozen;
  for (size_t p = 0; p < table.size(); ++p)
    if (flags[p] == 0 && table[p].num_elements() > 0) frozen.insert(table[p].name);
  const bool has_new = !std::ranges::includes(known_, frozen);
  known_ = frozen;
  const Tensor any = at::full({1}, has_new, at::kLong);
  state_.model.mesh.host_group(GroupKind::kWorld).all_reduce(any, comm::Reduction::kMax).wait();
  return any.item<int64_t>() != 0 ? gather(frozen) : std::vector<std::string>();
}

// Ranks that hold the same parameters have found the same: the first of each group tells. Collective over the world.
std::vector<std::string> FrozenParameters::gather(const std::set<std::string>& frozen) {
  const Mesh& mesh = state_.model.mesh;
  nlohmann::json own = nlohmann::json::array();
  for (const std::string& name : frozen) {
    if (own.size() == kMostNamed) break;
    const bool is_expert = state_.model.parameters.entry(name).replication.is_expert();
    if (mesh.host_group(is_expert ? GroupKind::kExpertData : GroupKind::kData).rank() == 0) own.push_back(name);
  }
  std::set<std::string> names;
  for (const std::string& text : gather_texts(mesh.host_group(GroupKind::kWorld), own.empty() ? "" : own.dump()))
    if (!text.empty())
      for (const auto& name : nlohmann::json::parse(text)) names.insert(name);
  std::vector<std::string> first(names.begin(), names.end());
  if (first.size() > kMostNamed) first.resize(kMostNamed);
  return first;
}

std::string describe_frozen(const std::vector<std::string>& names, int64_t step, int64_t interval) {
  const bool may_be_more = names.size() == FrozenParameters::kMostNamed;
  return fmt::format(
      "steps {} to {}: the updates did not change any element of {}{}: the loss does not depend on them, "
      "or their updates are too small for fp32",
      step - interval + 1, step, join_first(names, 4), may_be_more ? " or more" : "");
}

}  // namespace athanor::inline watch
