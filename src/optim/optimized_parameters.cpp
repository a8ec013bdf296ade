#include "optim/optimized_parameters.h"

namespace athanor::inline optim {
namespace {

void append(std::vector<OptimizedParameters::Segment>& segments, const OptimizedParameters::Segment& next) {
  if (!segments.empty() && segments.back().range.end == next.range.begin && segments.back().has_settings_of(next)) {
    segments.back().range.end = next.range.end;
  } else {
    segments.push_back(next);
  }
}

}  // namespace

ops::UpdateMemory update_memory(const ParameterStore& store, FlatRange range) {
  const Tensor& low = store.master_low();
  return {store.compute().narrow(0, range.begin, range.size()),
          low.defined() ? low.narrow(0, store.state_begin(range), range.size()) : Tensor(),
          store.grad().narrow(0, range.begin, range.size())};
}

OptimizedParameters::OptimizedParameters(ParameterStore& store, const OptimizerPlan& plan, const std::string& optimizer)
    : store_(&store) {
  const auto ranges = find_group_ranges(store.table(), store.flat_size(), plan);
  owned_ = find_state_ranges(store.owned(), ranges, optimizer);
  for (const GroupRange& each : ranges) {
    if (each.group->optimizer == optimizer)
      append(groups_, {each.range, each.group->lr_scale, each.group->weight_decay, 0});
  }
  for (const BucketEntry& entry : store.table()) {
    if (group_of(plan.groups, entry.name, entry.role).optimizer != optimizer) continue;
    entries_.push_back(&entry);
    first_matrix_[&entry] = num_matrices_;
    num_matrices_ += count_matrices(entry.replication, entry.extent);
  }
  set_fresh_since({});
}

int64_t OptimizedParameters::state_size() const {
  return owned_.empty() ? 0 : owned_.back().state_begin + owned_.back().flat.size();
}

std::optional<int64_t> OptimizedParameters::state_begin(FlatRange range) const {
  for (const OwnedRange& owned : owned_) {
    if (intersect(range, owned.flat) == range) return owned.state_begin + range.begin - owned.flat.begin;
  }
  return std::nullopt;
}

void OptimizedParameters::set_fresh_since(const std::map<std::string, int64_t>& step_of_parameter) {
  segments_.clear();
  const auto& table = store_->table();
  for (size_t i = 0; i < table.size(); ++i) {
    // An entry runs up to the next, over the padding between them: zeros there stay zeros.
    const FlatRange run{table[i].flat_begin, i + 1 < table.size() ? table[i + 1].flat_begin : store_->flat_size()};
    const auto found = step_of_parameter.find(table[i].name);
    for (Segment segment : groups_) {
      segment.range = intersect(segment.range, run);
      segment.since = found == step_of_parameter.end() ? 0 : found->second;
      if (segment.range.size() > 0) append(segments_, segment);
    }
  }
}

}  // namespace athanor::inline optim
