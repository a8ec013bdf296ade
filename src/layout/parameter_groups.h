#pragma once
// Parameter groups: the parameters that an optimizer updates with the same settings, chosen by role or by name.

#include <string>
#include <vector>

#include "arch/inventory.h"
#include "config/run_config.h"

namespace athanor::inline layout {

struct ParameterGroup {
  /// The group takes a parameter that has one of these roles, or whose name matches one of these patterns
  /// (base/text.h: matches_wildcard). If both lists are empty it takes every parameter.
  std::vector<Role> roles = {};
  std::vector<std::string> patterns = {};
  /// Further conditions, if they are not empty: the name must match one of these patterns, and the role be one of
  /// these.
  std::vector<std::string> only = {};
  std::vector<Role> of_roles = {};
  double lr_scale = 1;  ///< factor of the learning rate
  double weight_decay = 0;
  std::string optimizer = "adamw";
  /// If not empty, the group takes none but these; names in increasing order (layout/width_groups.h).
  std::vector<std::string> among = {};

  bool takes(const std::string& name, Role role) const;
};

/// Returns the groups of a run: optimizer.groups, then the matrices of the layers if Muon updates them, then the rest;
/// each of them preceded by its part in optimizer.no_weight_decay, if its decay is the run's. The first group that
/// takes a parameter is the parameter's; the last one takes every parameter.
std::vector<ParameterGroup> parameter_groups(const OptimizerConfig& config);

/// Returns the first of the groups that takes the parameter. There must be one.
const ParameterGroup& group_of(const std::vector<ParameterGroup>& groups, const std::string& name, Role role);

/// Returns whether Muon updates parameters of this role unless a group decides otherwise: the matrices of the layers,
/// without the router.
bool is_muon_role(Role role);

}  // namespace athanor::inline layout
