#include "train/integrity.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "parallel/share.h"
#include "train/seconds_into.h"

namespace athanor {

Integrity::Integrity(TrainState& state, int64_t interval) : state_(state), interval_(interval) {}

void Integrity::watch(std::vector<Watched>& list, const std::string& what, Watched::Index index, const Tensor& values,
                      int64_t begin, const Optimizer* optimizer) const {
  if (values.defined() && values.numel() > 0)
    list.push_back({what, index, optimizer, begin, values, BlockHashes(values)});
}

void Integrity::hash_weights() {
  const SecondsInto spent(seconds_);
  const ParameterStore& parameters = state_.model.parameters;
  weights_.clear();
  for (const Bucket& bucket : parameters.buckets())
    watch(weights_, "the weights", Watched::Index::kFlat,
          parameters.compute().narrow(0, bucket.range.begin, bucket.range.size()), bucket.range.begin);
}

void Integrity::hash_state() {
  const SecondsInto spent(seconds_);
  optimizer_state_.clear();
  watch(optimizer_state_, "the lower bits of the master", Watched::Index::kState, state_.model.parameters.master_low());
  for (const auto& optimizer : state_.optimizer.set.optimizers()) {
    for (const HeldState& held : optimizer->state()) {
      const bool by_element = held.kind.extent == StateKind::Extent::kElement;
      watch(optimizer_state_, held.kind.name, by_element ? Watched::Index::kState : Watched::Index::kOther, held.values,
            0, optimizer.get());
    }
  }
}

void Integrity::begin_step(int64_t step) {
  step_ = step;
  if (!is_due(step)) return;
  const at::NoGradGuard no_grad;
  state_.model.gatherer.wait_all();
  if (optimizer_state_.empty()) hash_state();  // the first step of an attempt
  hash_weights();
  auto found = compare_replicas(GroupKind::kData, /*experts=*/false);
  const auto experts = compare_replicas(GroupKind::kExpertData, /*experts=*/true);
  fail_if_found(found ? found : experts);
}

void Integrity::before_update() {
  if (!is_due(step_)) return;
  const at::NoGradGuard no_grad;
  auto found = find_change(weights_);
  if (!found) found = find_change(optimizer_state_);
  weights_.clear();
  optimizer_state_.clear();
  fail_if_found(found);
}

void Integrity::after_update(int64_t step) {
  if (is_due(step + 1)) hash_state();
}

std::optional<Integrity::Finding> Integrity::find_change(const std::vector<Watched>& list) {
  const SecondsInto spent(seconds_);
  for (const Watched& watched : list) {
    const auto range = watched.hashes.first_difference(BlockHashes(watched.values));
    if (!range) continue;
    const std::string name = name_of(watched, *range);
    return Finding{name, fmt::format("{} have changed in memory before the update: {}",
                                     watched.what == "the weights" ? watched.what : "values of " + watched.what, name)};
  }
  return std::nullopt;
}

// Returns the first parameter of a range of elements, and which of its elements on this rank are in the range.
std::string Integrity::name_of(const Watched& watched, FlatRange range) const {
  if (watched.index == Watched::Index::kOther) return watched.what;
  const ParameterStore& parameters = state_.model.parameters;
  range = {range.begin + watched.begin, range.end + watched.begin};
  if (watched.index == Watched::Index::kState) {
    const auto& all = watched.optimizer ? watched.optimizer->parameters().owned() : parameters.owned();
    const auto at = std::ranges::find_if(all, [&](const OwnedRange& owned) {
      return intersect(range, {owned.state_begin, owned.state_begin + owned.flat.size()}).size() > 0;
    });
    if (at == all.end()) return watched.what;
    const int64_t shift = at->flat.begin - at->state_begin;
    range = intersect({range.begin + shift, range.end + shift}, at->flat);
  }
  for (const BucketEntry& entry : parameters.table()) {
    const FlatRange common = intersect(range, entry.range());
    if (common.size() > 0)
      return fmt::format("{} (elements {} to {} of the rank's part)", entry.name, common.begin - entry.flat_begin,
                         common.end - 1 - entry.flat_begin);
  }
  return "padding";
}

// Compares the hashes of the buckets that the ranks of a group hold equally. Collective over the group.
std::optional<Integrity::Finding> Integrity::compare_replicas(GroupKind kind, bool experts) const {
  comm::Communicator& group = state_.model.mesh.host_group(kind);
  if (group.size() == 1) return std::nullopt;
  const auto& buckets = state_.model.parameters.buckets();
  std::vector<const Watched*> compared;
  for (size_t b = 0; b < buckets.size(); ++b)
    if (buckets[b].replication.is_expert() == experts) compared.push_back(&weights_[b]);
  if (compared.empty()) return std::nullopt;
  const auto count = std::ssize(compared);
  const Tensor hashes = at::empty({2, count}, at::kLong);
  for (int64_t b = 0; b < count; ++b) hashes[0][b] = compared[static_cast<size_t>(b)]->hashes.combined();
  hashes[1].copy_(at::bitwise_not(hashes[0]));
  const Tensor own = hashes[0].clone();
  group.all_reduce(hashes, comm::Reduction::kMax).wait();  // the largest, and of the complements: the smallest
  const Tensor differ = hashes[0].ne(at::bitwise_not(hashes[1]));
  if (!differ.any().item<bool>()) return std::nullopt;
  const auto bucket = static_cast<size_t>(differ.to(at::kLong).argmax().item<int64_t>());
  const Tensor all = at::empty({group.size()}, at::kLong);
  group.all_gather(all, own.narrow(0, static_cast<int64_t>(bucket), 1).clone()).wait();
  std::map<int64_t, int> holders;
  const auto* values = all.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < group.size(); ++i) ++holders[values[i]];
  const int most = std::ranges::max_element(holders, {}, [](const auto& each) { return each.second; })->second;
  const auto with_most = std::ranges::count_if(holders, [&](const auto& each) { return each.second == most; });
  const int64_t mine = values[group.rank()];
  if (with_most == 1 && holders.at(mine) == most) return std::nullopt;
  const Watched& watched = *compared[bucket];
  const std::string name = name_of(watched, {0, watched.values.numel()});
  return Finding{name,
                 with_most == 1
                     ? fmt::format("its weights differ from those of {} others that should be the same, in the bucket "
                                   "that begins with {}",
                                   most, name)
                     : fmt::format("its weights and those of other ranks should be the same and differ, in the "
                                   "bucket that begins with {}; which of them are wrong is not known",
                                   name)};
}

// Ends the step on every rank if a rank has found something; the lowest one speaks. Collective over the world.
void Integrity::fail_if_found(const std::optional<Finding>& own) const {
  const Mesh& mesh = state_.model.mesh;
  comm::Communicator& all = mesh.host_group(GroupKind::kWorld);
  const Tensor finder = at::full({1}, own ? all.size() - all.rank() : 0, at::kLong);
  all.all_reduce(finder, comm::Reduction::kMax).wait();
  if (finder.item<int64_t>() == 0) return;
  const int rank = all.size() - static_cast<int>(finder.item<int64_t>());
  nlohmann::json said;
  if (own && rank == all.rank()) said = {{"tensor", own->tensor}, {"text", own->text}, {"host", mesh.world().host()}};
  said = nlohmann::json::parse(broadcast_text(all, said.dump(), wait_for_pending, rank));
  const std::string host = said.at("host");
  throw NumbersError(
      fmt::format("step {}: silent corruption on rank {} ({}): {}. Nothing was updated. Run again without {}", step_,
                  rank, host, said.at("text").get<std::string>(), host),
      said.at("tensor"), exit_code::kNumbersOfANode, rank, host);
}

}  // namespace athanor
