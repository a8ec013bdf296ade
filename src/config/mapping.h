#pragma once
// parallelism.mapping: in which order the axes of a layout run over the ranks.

#include <string>
#include <vector>

#include "config/fields.h"

namespace athanor {

/// The axes of arch/layout.h by name, in the order of "expert_inner".
std::vector<std::string> axis_names();

/// All axes, outermost first. @param mapping  one without faults.
std::vector<std::string> axes_of(const NameOrNames& mapping);

/// What is wrong with it, a line each; empty if nothing is.
std::vector<std::string> find_mapping_faults(const NameOrNames& mapping);

}  // namespace athanor
