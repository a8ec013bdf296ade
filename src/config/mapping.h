#pragma once
// parallelism.mapping: the order in which the axes of a layout vary over the ranks. The first axis is the outermost;
// the last varies from each rank to the next.

#include <string>
#include <vector>

#include "config/fields.h"

namespace athanor::inline config {

/// Returns the names of the axes of layout/layout.h, in the order of "expert_inner".
std::vector<std::string> axis_names();

/// Returns the names of all axes in the order of `mapping`, which must have no mapping faults.
std::vector<std::string> axes_of(const NameOrNames& mapping);

/// Returns a line for each mistake in the mapping; empty if there is none.
std::vector<std::string> find_mapping_faults(const NameOrNames& mapping);

}  // namespace athanor::inline config
