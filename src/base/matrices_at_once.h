#pragma once
// How many matrices Newton and Schulz's iteration computes at once: ops/newton_schulz.cpp does it, and
// layout/update_cost.cpp counts the memory.

#include <algorithm>
#include <cstdint>

namespace athanor {

/// Returns the number of matrices of this shape that together have at most 2²⁵ elements (on a device 2²⁷, whose
/// products must be large), and at least one.
inline int64_t matrices_at_once(int64_t rows, int64_t columns, bool on_device) {
  const int64_t most_elements = int64_t{1} << (on_device ? 27 : 25);
  return std::max<int64_t>(1, most_elements / std::max<int64_t>(1, rows * columns));
}

}  // namespace athanor
