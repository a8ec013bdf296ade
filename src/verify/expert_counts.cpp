#include "verify/expert_counts.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

namespace athanor::inline verify {

CountDifference compare_expert_counts(const std::string& what, const std::vector<int64_t>& counts,
                                      const std::vector<int64_t>& expected, int64_t num_sparse_layers) {
  if (counts == expected) return {what, 0};
  if (counts.size() != expected.size()) return {what, 1};
  double off = 0, all = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    off += std::abs(static_cast<double>(counts[i] - expected[i]));
    all += static_cast<double>(expected[i]);
  }
  const auto first = static_cast<size_t>(std::ranges::mismatch(counts, expected).in1 - counts.begin()),
             width = counts.size() / static_cast<size_t>(num_sparse_layers);
  const std::string where =
      width > 1 ? fmt::format("layer {}, expert {}", first / width, first % width) : fmt::format("layer {}", first);
  return {fmt::format("{} (sparse {}: {} instead of {})", what, where, counts[first], expected[first]),
          off / std::max(all, 1.0)};
}

}  // namespace athanor::inline verify
