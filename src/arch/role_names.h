#pragma once
// The names of roles in the configuration (optimizer.groups[].match).

#include <optional>
#include <string>
#include <vector>

#include "arch/inventory.h"

namespace athanor::inline arch {

/// Returns all names: embedding, norm, qk_norm, query, …, output.
std::vector<std::string> role_names();

/// Returns the role of this name, or nothing if there is none. No parameter has such a name, since all have a dot.
std::optional<Role> find_role(const std::string& name);

/// Returns whether a word of optimizer.groups[].match takes a parameter: the name of its role, or a pattern of its name
/// (base/text.h: matches_wildcard).
bool takes_parameter(const std::string& word, const ParameterSpec& spec);

}  // namespace athanor::inline arch
