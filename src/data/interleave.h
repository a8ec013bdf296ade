#pragma once
// Which of several sources each sample comes from, so that every source keeps its share at every moment.
//
// Tijdeman, "The chairman assignment problem", Discrete Mathematics 32 (1980): of the sources whose lag has reached
// 1 / (2k - 2), the one is drawn whose deadline comes first. Then after any n samples
//
//   |drawn_i - share_i n| <= 1 - 1 / (2k - 2)   for k sources,
//
// the best bound there is. A window of n samples is the difference of two such beginnings: its count differs from
// share_i n by at most 1 for two sources and by less than 2 for more, where no order at all can promise 1.

#include <cstddef>
#include <cstdint>
#include <vector>

namespace athanor {

class Interleave {
 public:
  /// @param weights  finite and above 0, at least one; only their ratios count.
  explicit Interleave(const std::vector<double>& weights);

  double share(size_t source) const;
  /// The weights in whole numbers, which is what is kept exactly: equal for equal ratios, to 1 part in 2^50.
  const std::vector<int64_t>& weights() const { return weights_; }

  /// The source of the next sample, counted in `drawn`: how many samples each source has given so far. Integers
  /// alone, so that nothing drifts.
  size_t next(std::vector<int64_t>& drawn) const;

 private:
  std::vector<int64_t> weights_;
  int64_t total_ = 0;
};

}  // namespace athanor
