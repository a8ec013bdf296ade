#pragma once
// Compares how many tokens each expert of each layer got in two runs.

#include <cstdint>
#include <string>
#include <vector>

namespace athanor {

struct CountDifference {
  std::string name;  ///< "chosen", or with the first difference: "chosen (sparse layer 1, expert 0: 22 instead of 21)"
  double error = 0;  ///< sum of the differences as a share of the whole; 0: equal
};

/// Compares two sets of counts.
/// @param what  name of what is counted.
/// @param counts, expected  for each layer, a count for each expert or one count for all.
CountDifference compare_expert_counts(const std::string& what, const std::vector<int64_t>& counts,
                                      const std::vector<int64_t>& expected, int64_t num_sparse_layers);

}  // namespace athanor
