#pragma once
// Compares how many tokens each expert of each layer got in two runs.

#include <cstdint>
#include <string>
#include <vector>

namespace athanor::inline verify {

struct CountDifference {
  std::string name;  ///< "chosen", or with the first difference: "chosen (sparse layer 1, expert 0: 22 instead of 21)"
  double error = 0;  ///< sum of the absolute differences as a share of the sum of the expected counts; 0: equal
};

/// Compares two sets of counts.
/// @param what  name of what is counted.
/// @param counts, expected  for each sparse layer in order, a count for each expert, or one count for the layer.
CountDifference compare_expert_counts(const std::string& what, const std::vector<int64_t>& counts,
                                      const std::vector<int64_t>& expected, int64_t num_sparse_layers);

}  // namespace athanor::inline verify
