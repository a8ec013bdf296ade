#pragma once
// Compares what two checkpoints hold in addition to tensors.

#include <vector>

#include "checkpoint/diff.h"

namespace athanor::inline checkpoint {

/// Returns the values of `model` and `state` that differ, in the order of their paths. The configuration, a text, is
/// compared field by field.
std::vector<ValueDifference> diff_values(const Manifest& a, const Manifest& b);

}  // namespace athanor::inline checkpoint
