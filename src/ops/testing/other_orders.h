#pragma once
// How far two computations may differ that add in different orders.

#include <algorithm>
#include <cstdint>

#include "ops/testing/on_path.h"

namespace athanor::ops::test {

/// Returns the largest of difference(), called while all products run on AVX2's path and on the library's: it repeats a
/// computation, and returns how far that is from one on this process's own path.
template <class Difference>
double difference_of_paths(const Difference& difference) {
  double largest = 0;
  for (const auto path : {MatmulPath::kAvx2, MatmulPath::kLibrary}) {
    if (!kernels::has_path(path)) continue;
    const OnPath on(path);
    largest = std::max<double>(largest, difference());
  }
  return largest;
}

/// Returns how far two computations may differ, relatively, of which `seen` was the largest difference of others.
///
/// With errors of size e in each, two differ by 2e at most; the difference seen may be as small as e/2 without the
/// errors being smaller, since it is the largest of two draws only. Hence four times what was seen. On a CPU whose own
/// path is one of the two, only one draw is left, which may show a single rounding. So the bound is never below what
/// the order of one sum of `terms` terms may change: its error is at most terms · 2⁻²⁴ of the sum of their sizes.
inline double rounding_bound(double seen, int64_t terms) {
  return std::max(4 * seen, static_cast<double>(terms) * 0x1p-24);
}

}  // namespace athanor::ops::test
