#pragma once
// The parts in which verify compares a parameter: the whole parameter, or, if it stacks experts, each expert.

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "arch/inventory.h"
#include "verify/trace.h"

namespace athanor::inline verify {

/// Calls visit(name, begin, end) for a parameter, or for each of its experts, named "NAME[3]". The part has elements
/// [begin, end) of the parameter, row-major.
template <class Visit>
void for_parts(const ParameterSpec& spec, Visit visit) {
  const int64_t parts = spec.is_expert() ? spec.shape[0] : 1, size = spec.num_elements() / parts;
  for (int64_t part = 0; part < parts; ++part) {
    visit(spec.is_expert() ? fmt::format("{}[{}]", spec.name, part) : spec.name, part * size, (part + 1) * size);
  }
}

inline double dot(const float* a, const float* b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(a[i]) * b[i];
  return sum;
}

inline double norm_of(const float* x, int64_t n) { return std::sqrt(dot(x, x, n)); }

inline double square_distance(const float* a, const float* b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += (static_cast<double>(a[i]) - b[i]) * (static_cast<double>(a[i]) - b[i]);
  return sum;
}

/// The root mean square of all gradients of a kind in a step.
inline double root_mean_square(const WholeTrace& trace, const std::vector<ParameterSpec>& inventory, int64_t step,
                               const char* kind) {
  double squares = 0, count = 0;
  for (const ParameterSpec& spec : inventory) {
    const auto& values = trace.values(step, kind, spec.name);
    squares += dot(values.data(), values.data(), static_cast<int64_t>(values.size()));
    count += static_cast<double>(spec.num_elements());
  }
  return std::sqrt(squares / std::max(count, 1.0));
}

inline double distance(const float* a, const float* b, int64_t n) { return std::sqrt(square_distance(a, b, n)); }

}  // namespace athanor::inline verify
