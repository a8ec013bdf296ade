#include "layout/parameter_groups.h"

#include <algorithm>

#include "arch/inventory.h"
#include "base/error.h"
#include "base/text.h"

namespace athanor::inline layout {
namespace {

bool matches_any(const std::vector<std::string>& patterns, const std::string& name) {
  return std::ranges::any_of(patterns, [&](const std::string& pattern) { return matches_wildcard(pattern, name); });
}

// Appends a group, and before it the part of it that does not decay.
void append(std::vector<ParameterGroup>& groups, const ParameterGroup& group, const OptimizerConfig& config) {
  if (!config.no_weight_decay.empty()) {
    ParameterGroup without = group;
    without.only = config.no_weight_decay;
    without.weight_decay = 0;
    groups.push_back(without);
  }
  groups.push_back(group);
}

// Appends a group of the configuration. Without a name it keeps the optimizers that its parameters have anyway, which
// with Muon are two.
void append_configured(std::vector<ParameterGroup>& groups, const OptimizerGroupConfig& given,
                       const OptimizerConfig& config) {
  ParameterGroup group;
  for (const std::string& word : given.match) {
    const auto role = find_role(word);
    if (role)
      group.roles.push_back(*role);
    else
      group.patterns.push_back(word);
  }
  group.lr_scale = given.lr > 0 ? given.lr / config.lr : 1;
  group.weight_decay = given.weight_decay >= 0 ? given.weight_decay : config.weight_decay;
  const auto append_decided = [&](const ParameterGroup& each) {
    given.weight_decay >= 0 ? groups.push_back(each) : append(groups, each, config);
  };
  if (given.name.empty() && config.name == "muon") {
    ParameterGroup matrices = group;
    matrices.of_roles = hidden_matrices();
    matrices.optimizer = "muon";
    append_decided(matrices);
    group.optimizer = "adamw";
  } else {
    group.optimizer = given.name.empty() ? config.name : given.name;
  }
  append_decided(group);
}

}  // namespace

bool ParameterGroup::takes(const std::string& name, Role role) const {
  if (!only.empty() && !matches_any(only, name)) return false;
  if (!of_roles.empty() && std::ranges::find(of_roles, role) == of_roles.end()) return false;
  if (!among.empty() && !std::ranges::binary_search(among, name)) return false;
  if (roles.empty() && patterns.empty()) return true;
  return std::ranges::find(roles, role) != roles.end() || matches_any(patterns, name);
}

std::vector<ParameterGroup> parameter_groups(const OptimizerConfig& config) {
  std::vector<ParameterGroup> groups;
  for (const OptimizerGroupConfig& each : config.groups) append_configured(groups, each, config);
  if (config.name == "muon")
    append(groups, {.roles = hidden_matrices(), .weight_decay = config.weight_decay, .optimizer = "muon"}, config);
  append(groups, {.weight_decay = config.weight_decay, .optimizer = config.name == "muon" ? "adamw" : config.name},
         config);
  return groups;
}

const ParameterGroup& group_of(const std::vector<ParameterGroup>& groups, const std::string& name, Role role) {
  const auto found = std::ranges::find_if(groups, [&](const ParameterGroup& group) { return group.takes(name, role); });
  if (found == groups.end()) fail<Error>("bug: no parameter group takes {}", name);
  return *found;
}

bool is_muon_role(Role role) { return std::ranges::find(hidden_matrices(), role) != hidden_matrices().end(); }

}  // namespace athanor::inline layout
