#include "layout/optimizer_state.h"

#include <algorithm>

#include "base/error.h"
#include "config/optimizer_checks.h"

namespace athanor::inline layout {

int64_t bytes_of(StateType type) { return type == StateType::kFloat32 ? 4 : 2; }

std::string StateKind::tensor_name(const std::string& parameter) const {
  return extent == Extent::kScalar ? name : name + "/" + parameter;
}

int64_t count_matrices(Replication replication, const std::vector<int64_t>& shape) {
  return replication.is_expert() ? shape.front() : 1;
}

int64_t count_matrices(const ParameterSpec& spec) { return spec.is_expert() ? spec.shape.front() : 1; }

int64_t OptimizerDeclaration::bytes_per(StateKind::Extent extent) const {
  int64_t bytes = 0;
  for (const StateKind& kind : state) bytes += kind.extent == extent ? bytes_of(kind.type) : 0;
  return bytes;
}

int64_t OptimizerDeclaration::count_kinds(StateKind::Extent extent) const {
  return std::ranges::count(state, extent, &StateKind::extent);
}

const OptimizerDeclaration& OptimizerPlan::optimizer(const std::string& name) const {
  const auto found = std::ranges::find(optimizers, name, &OptimizerDeclaration::name);
  if (found == optimizers.end())
    fail<Error>("bug: a parameter group names an optimizer that is not declared: {}", name);
  return *found;
}

int64_t OptimizerPlan::count_elements(const ModelConfig& model, const std::string& optimizer) const {
  int64_t elements = 0;
  for (const ParameterSpec& spec : make_inventory(model))
    elements += optimizer_of(spec.name, spec.role).name == optimizer ? spec.num_elements() : 0;
  return elements;
}

std::vector<std::string> OptimizerPlan::tensor_names(const ModelConfig& model) const {
  std::vector<std::string> names;
  for (const ParameterSpec& spec : make_inventory(model)) {
    for (const StateKind& kind : optimizer_of(spec.name, spec.role).state)
      if (kind.extent != StateKind::Extent::kScalar) names.push_back(kind.tensor_name(spec.name));
  }
  for (const OptimizerDeclaration& each : optimizers) {
    for (const StateKind& kind : each.state)
      if (kind.extent == StateKind::Extent::kScalar) names.push_back(kind.tensor_name(""));
  }
  return names;
}

OptimizerDeclaration declare_optimizer(const std::string& name) {
  const OptimizerRow& row = optimizer_row(name);
  OptimizerDeclaration declared{.name = name, .state = {}, .needs = row.needs};
  for (const std::string& kind : row.state) declared.state.push_back({kind});
  return declared;
}

OptimizerPlan plan_optimizers(const OptimizerConfig& config) {
  OptimizerPlan plan{parameter_groups(config), {}};
  for (const std::string& name : named_optimizers(config)) plan.optimizers.push_back(declare_optimizer(name));
  return plan;
}

std::vector<GroupRange> find_group_ranges(const std::vector<BucketEntry>& table, int64_t flat_size,
                                          const OptimizerPlan& plan) {
  std::vector<GroupRange> ranges;
  for (const BucketEntry& entry : table) {
    const ParameterGroup* group = &group_of(plan.groups, entry.name, entry.role);
    if (!ranges.empty() && ranges.back().group == group) continue;
    if (!ranges.empty()) ranges.back().range.end = entry.flat_begin;
    ranges.push_back({{entry.flat_begin, flat_size}, group});
  }
  return ranges;
}

std::vector<OwnedRange> find_state_ranges(const std::vector<OwnedRange>& owned, const std::vector<GroupRange>& groups,
                                          const std::string& optimizer) {
  std::vector<OwnedRange> ranges;
  int64_t state = 0;
  size_t first = 0;  // the first group range that does not end before the owned one
  for (const OwnedRange& each : owned) {
    while (first < groups.size() && groups[first].range.end <= each.flat.begin) ++first;
    for (size_t g = first; g < groups.size() && groups[g].range.begin < each.flat.end; ++g) {
      if (groups[g].group->optimizer != optimizer) continue;
      const FlatRange common = intersect(each.flat, groups[g].range);
      if (!ranges.empty() && ranges.back().flat.end == common.begin) {
        ranges.back().flat.end = common.end;
      } else {
        ranges.push_back({common, state});
      }
      state += common.size();
    }
  }
  return ranges;
}

int64_t count_optimizer_bytes(const std::vector<BucketEntry>& table, int64_t flat_size,
                              const std::vector<OwnedRange>& owned, const OptimizerPlan& plan) {
  const auto groups = find_group_ranges(table, flat_size, plan);
  int64_t bytes = 0;
  for (const OptimizerDeclaration& optimizer : plan.optimizers) {
    for (const OwnedRange& range : find_state_ranges(owned, groups, optimizer.name))
      bytes += range.flat.size() * optimizer.bytes_per_element();
    bytes += optimizer.scalar_bytes();
  }
  for (const BucketEntry& entry : table)
    bytes +=
        count_matrices(entry.replication, entry.extent) * plan.optimizer_of(entry.name, entry.role).bytes_per_matrix();
  return bytes;
}

}  // namespace athanor::inline layout
