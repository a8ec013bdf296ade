#include "watch/integrity.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"
#include "config/due.h"
#include "ops/tensor.h"
#include "parallel/share.h"
#include "train/stopwatches.h"

namespace athanor::inline watch {
namespace {

constexpr const char* kWeights = "the weights";
constexpr size_t kMostRanksNamed = 4;

template <class Lists>
void fetch_hashes(const Lists& lists) {
  std::vector<BlockHashes*> all;
  for (auto* list : lists)
    for (auto& each : *list) all.push_back(&each.hashes);
  BlockHashes::fetch(all);
}

}  // namespace

Integrity::Integrity(TrainState& state, int64_t interval)
    : state_(state), interval_(interval),
      hasher_(interval > 0 ? ops::MemoryHasher::of(state.model.device()) : nullptr) {}

void Integrity::watch(std::vector<Watched>& list, const std::string& what, const Tensor& values, FlatRange flat,
                      const Bucket* bucket) const {
  if (values.defined() && values.numel() > 0)
    list.push_back({what, flat, bucket, values, BlockHashes(values, *hasher_)});
}

void Integrity::hash_weights() {
  const SecondsInto spent(seconds_);
  const ParameterStore& parameters = state_.model.parameters;
  weights_.clear();
  for (const Bucket& bucket : parameters.buckets())
    watch(weights_, kWeights, parameters.compute().narrow(0, bucket.range.begin, bucket.range.size()), bucket.range,
          &bucket);
}

// State of owned elements, bucket by bucket: copies of a bucket are on other ranks than those of another one.
void Integrity::watch_owned(const std::string& what, const Tensor& values, const std::vector<OwnedRange>& owned) {
  if (!values.defined()) return;
  for (const Bucket& bucket : state_.model.parameters.buckets()) {
    for (const OwnedRange& each : owned) {
      const FlatRange common = intersect(bucket.range, each.flat);
      if (common.size() <= 0) continue;
      const int64_t begin = each.state_begin + common.begin - each.flat.begin;
      watch(optimizer_state_, what, values.narrow(0, begin, common.size()), common, &bucket);
    }
  }
}

void Integrity::hash_state() {
  const SecondsInto spent(seconds_);
  optimizer_state_.clear();
  const ParameterStore& parameters = state_.model.parameters;
  watch_owned("the lower bits of the master", parameters.master_low(), parameters.owned());
  for (const auto& optimizer : state_.optimizer.set.optimizers()) {
    for (const HeldState& held : optimizer->state()) {
      if (held.kind.extent == StateKind::Extent::kElement)
        watch_owned(held.kind.name, held.values, optimizer->parameters().owned());
      else
        watch(optimizer_state_, held.kind.name, held.values);
    }
  }
}

void Integrity::begin_step(int64_t step) {
  step_ = step;
  if (!is_due(step, interval_)) return;
  const at::NoGradGuard no_grad;
  state_.model.gatherer.wait_all();
  if (optimizer_state_.empty()) hash_state();  // the first step of an attempt
  hash_weights();
  fetch_hashes(std::array{&weights_, &optimizer_state_});
  fail_if_found(compare_copies());
}

void Integrity::before_update() {
  if (!is_due(step_, interval_)) return;
  const at::NoGradGuard no_grad;
  const auto found = find_change();
  weights_.clear();
  optimizer_state_.clear();
  fail_if_found(found);
}

void Integrity::after_update(int64_t step) {
  if (is_due(step + 1, interval_)) hash_state();
}

std::optional<Integrity::Finding> Integrity::find_change() {
  const SecondsInto spent(seconds_);
  const std::array lists{&weights_, &optimizer_state_};
  std::vector<BlockHashes> now;
  for (const auto* list : lists)
    for (const Watched& watched : *list) now.emplace_back(watched.values, *hasher_);
  std::vector<BlockHashes*> all;
  for (BlockHashes& each : now) all.push_back(&each);
  BlockHashes::fetch(all);
  auto next = now.begin();
  for (const auto* list : lists) {
    for (const Watched& watched : *list) {
      const auto range = watched.hashes.first_difference(*next++);
      if (!range) continue;
      const std::string name = parameters_in(watched, *range);
      return Finding{name, fmt::format("{} have changed in memory before the update: {}",
                                       watched.what == kWeights ? watched.what : "values of " + watched.what, name)};
    }
  }
  return std::nullopt;
}

// Returns the parameters of a range of elements, and which of their elements on this rank are in the range. A block has
// one hash, so that of several parameters any may be the one that has changed.
std::string Integrity::parameters_in(const Watched& watched, FlatRange range) const {
  if (watched.flat.size() <= 0) return watched.what;
  range = {range.begin + watched.flat.begin, range.end + watched.flat.begin};
  std::vector<std::string> found;
  for (const BucketEntry& entry : state_.model.parameters.table()) {
    const FlatRange common = intersect(range, entry.range());
    if (common.size() > 0)
      found.push_back(fmt::format("{} (elements {} to {} of the rank's part)", entry.name,
                                  common.begin - entry.flat_begin, common.end - 1 - entry.flat_begin));
  }
  if (found.empty()) return "padding";
  if (found.size() == 1) return found.front();
  return fmt::format("one of {} parameters, from {} to {}", found.size(), found.front(), found.back());
}

std::string Integrity::first_parameter_of(const Watched& watched) const {
  for (const BucketEntry& entry : state_.model.parameters.table())
    if (intersect(watched.flat, entry.range()).size() > 0) return entry.name;
  return watched.what;
}

// What the ranks of each group hold equally, in the same order on all of them: weights on the ranks that compute with
// them, state on those that own the same shard, and both on a replica group (layout/replication.h).
std::map<GroupKind, std::vector<const Integrity::Watched*>> Integrity::copies_by_group() const {
  std::map<GroupKind, std::vector<const Watched*>> shared;
  for (const auto* list : {&weights_, &optimizer_state_}) {
    for (const Watched& watched : *list) {
      if (!watched.bucket) continue;
      const Replication replication = watched.bucket->replication;
      const ShardRule rule = shard_rule(state_.model.plan.kind(), replication);
      const auto copies = list == &weights_ ? std::optional(replication.data_ranks()) : rule.copies;
      if (copies) shared[*copies].push_back(&watched);
      if (rule.replicas) shared[*rule.replicas].push_back(&watched);
    }
  }
  return shared;
}

// Collective over the groups of the mesh, in the same order on all ranks.
std::optional<Integrity::Finding> Integrity::compare_copies() {
  std::optional<Finding> found;
  for (const auto& [kind, copies] : copies_by_group()) {
    std::vector<int64_t> numbers;
    for (const Watched* each : copies) numbers.push_back(each->hashes.combined());
    comm::Communicator& group = state_.model.mesh.host_group(kind);
    const auto unequal = find_unequal_copies(group, numbers);
    if (!unequal) continue;
    const auto finding = finding_of(group, *unequal, *copies[unequal->index]);
    if (finding && (!found || (finding->is_own && !found->is_own))) found = finding;
  }
  return found;
}

// What a difference means for this rank.
std::optional<Integrity::Finding> Integrity::finding_of(const comm::Communicator& group, const UnequalCopies& unequal,
                                                        const Watched& watched) const {
  if (!std::ranges::binary_search(unequal.wrong_ranks, group.rank())) return std::nullopt;
  const std::string name = first_parameter_of(watched);
  const std::string what = watched.what == kWeights ? "weights" : "values of " + watched.what;
  if (unequal.is_known)
    return Finding{name, fmt::format("its {} differ from those of {} others that should be the same, in the bucket "
                                     "that begins with {}",
                                     what, group.size() - std::ssize(unequal.wrong_ranks), name)};
  std::vector<std::string> ranks;
  for (const int rank : group.options().world_ranks)
    ranks.push_back(fmt::format("{} ({})", rank, state_.model.mesh.world().hosts()[static_cast<size_t>(rank)]));
  return Finding{.tensor = name,
                 .text = fmt::format("the {} of ranks {} should be the same and differ, in the bucket that begins with "
                                     "{}; which of them are wrong is not known",
                                     what, join_first(ranks, kMostRanksNamed), name),
                 .is_own = false};
}

// Ends the step on every rank if a rank has found something. The lowest one speaks, and one that knows itself to be
// wrong before one that does not. Collective over the world.
void Integrity::fail_if_found(const std::optional<Finding>& own) const {
  const Mesh& mesh = state_.model.mesh;
  comm::Communicator& all = mesh.host_group(GroupKind::kWorld);
  const int64_t size = all.size(), order = size - all.rank();
  const Tensor finder = at::full({1}, own ? (own->is_own ? size : 0) + order : 0, at::kLong);
  all.all_reduce(finder, comm::Reduction::kMax).wait();
  const auto first = finder.item<int64_t>();
  if (first == 0) return;
  const bool is_known = first > size;
  const int rank = static_cast<int>(size - (is_known ? first - size : first));
  nlohmann::json said;
  if (own && rank == all.rank()) said = {{"tensor", own->tensor}, {"text", own->text}, {"host", mesh.world().host()}};
  said = nlohmann::json::parse(broadcast_text(all, said.dump(), wait_for_pending, rank));
  const std::string host = said.at("host"), text = said.at("text");
  const std::string where = is_known ? fmt::format(" on rank {} ({})", rank, host) : "";
  throw NumbersError(
      fmt::format("step {}: silent corruption{}: {}. Nothing was updated. Run again{}", step_, where, text,
                  is_known ? " without " + host : ", and without one of these hosts if it comes again"),
      said.at("tensor"), exit_code::kNumbersOfANode, is_known ? rank : -1, is_known ? host : "");
}

std::optional<UnequalCopies> find_unequal_copies(comm::Communicator& group, std::span<const int64_t> numbers) {
  if (group.size() == 1 || numbers.empty()) return std::nullopt;
  const auto count = std::ssize(numbers);
  const Tensor own = at::empty({count}, at::kLong);
  std::ranges::copy(numbers, own.data_ptr<int64_t>());
  const Tensor bounds = at::stack({own, at::bitwise_not(own)});
  group.all_reduce(bounds, comm::Reduction::kMax).wait();  // the largest, and of the complements: the smallest
  const Tensor differ = bounds[0].ne(at::bitwise_not(bounds[1]));
  if (!differ.any().item<bool>()) return std::nullopt;
  UnequalCopies found{.index = static_cast<size_t>(differ.to(at::kLong).argmax().item<int64_t>())};
  const Tensor all = at::empty({group.size()}, at::kLong);
  group.all_gather(all, own.narrow(0, static_cast<int64_t>(found.index), 1).clone()).wait();
  const std::span values(all.const_data_ptr<int64_t>(), static_cast<size_t>(group.size()));
  std::map<int64_t, int64_t> holders;
  for (const int64_t value : values) ++holders[value];
  const auto most = std::ranges::max_element(holders, {}, [](const auto& each) { return each.second; });
  found.is_known = 2 * most->second > group.size();
  for (int rank = 0; rank < group.size(); ++rank)
    if (!found.is_known || values[static_cast<size_t>(rank)] != most->first) found.wrong_ranks.push_back(rank);
  return found;
}

}  // namespace athanor::inline watch
