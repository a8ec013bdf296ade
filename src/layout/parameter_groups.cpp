#include "layout/parameter_groups.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"

namespace athanor {

bool ParameterGroup::takes(const std::string& name, Role role) const {
  if (!among.empty() && !std::ranges::binary_search(among, name)) return false;
  if (roles.empty() && patterns.empty()) return true;
  return std::ranges::find(roles, role) != roles.end() ||
         std::ranges::any_of(patterns, [&](const std::string& pattern) { return matches_wildcard(pattern, name); });
}

std::vector<ParameterGroup> parameter_groups(const OptimizerConfig& config) {
  std::vector<ParameterGroup> groups;
  if (!config.no_weight_decay.empty()) groups.push_back({.patterns = config.no_weight_decay});
  groups.push_back({.weight_decay = config.weight_decay});
  return groups;
}

const ParameterGroup& group_of(const std::vector<ParameterGroup>& groups, const std::string& name, Role role) {
  const auto found = std::ranges::find_if(groups, [&](const ParameterGroup& group) { return group.takes(name, role); });
  if (found == groups.end()) fail<Error>("bug: no parameter group takes {}", name);
  return *found;
}

}  // namespace athanor
