#pragma once
// Parameter groups: the parameters that an optimizer updates with the same settings, chosen by role or by name.

#include <string>
#include <vector>

#include "arch/inventory.h"
#include "config/run_config.h"

namespace athanor {

struct ParameterGroup {
  /// The group takes a parameter that has one of these roles, or whose name matches one of these patterns
  /// (base/text.h: matches_wildcard). If both lists are empty it takes every parameter.
  std::vector<Role> roles = {};
  std::vector<std::string> patterns = {};
  double lr_scale = 1;  ///< factor of the learning rate
  double weight_decay = 0;
  std::string optimizer = "adamw";
  /// If not empty, the group takes none but these; names in increasing order (layout/width_groups.h).
  std::vector<std::string> among = {};

  bool takes(const std::string& name, Role role) const;
};

/// Returns the groups of a run: optimizer.no_weight_decay without decay, then the rest. The first group that takes a
/// parameter is the parameter's; the last one takes every parameter.
std::vector<ParameterGroup> parameter_groups(const OptimizerConfig& config);

/// Returns the first of the groups that takes the parameter. There must be one.
const ParameterGroup& group_of(const std::vector<ParameterGroup>& groups, const std::string& name, Role role);

}  // namespace athanor
