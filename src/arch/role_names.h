#pragma once
// The names of roles in the configuration (optimizer.groups[].match).

#include <optional>
#include <string>
#include <vector>

#include "arch/inventory.h"

namespace athanor {

/// Returns all names: embedding, norm, qk_norm, query, …, output.
std::vector<std::string> role_names();

/// Returns the role of this name, or nothing if there is none. No parameter has such a name, since all have a dot.
std::optional<Role> find_role(const std::string& name);

}  // namespace athanor
