#pragma once
// How many tokens each expert of each layer got, in two runs.

#include <cstdint>
#include <string>
#include <vector>

namespace athanor {

struct CountDifference {
  std::string
      name;  ///< "chosen", or with the first that differs: "chosen (sparse layer 1, expert 0: 22 instead of 21)"
  double error = 0;  ///< what they differ by, all together, as a share of all; 0: equal
};

/// @param what  is counted. @param counts, expected  of each layer: of each expert, or one of all.
CountDifference compare_expert_counts(const std::string& what, const std::vector<int64_t>& counts,
                                      const std::vector<int64_t>& expected, int64_t num_sparse_layers);

}  // namespace athanor
