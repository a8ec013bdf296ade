#pragma once
// Chooses the source of each sample among several, so that every source keeps its share at every moment.
//
// Source: Tijdeman, "The chairman assignment problem", Discrete Mathematics 32 (1980). Of the sources whose lag has
// reached 1 / (2k - 2), the one whose deadline comes first is drawn. After any n samples
//
//   |drawn_i - share_i n| <= 1 - 1 / (2k - 2)   for k sources,
//
// which is the best possible bound. A window of n samples is the difference of two such beginnings: its count differs
// from share_i n by at most 1 for two sources and by less than 2 for more, for which no order can guarantee 1.

#include <cstddef>
#include <cstdint>
#include <vector>

namespace athanor {

class Interleave {
 public:
  /// @param weights  finite and above 0, at least one; only their ratios count.
  explicit Interleave(const std::vector<double>& weights);

  double share(size_t source) const;
  /// The weights as integers, which are stored exactly: equal ratios give equal integers, rounded to 1 / 2^50 of their
  /// sum.
  const std::vector<int64_t>& weights() const { return weights_; }

  /// Returns the source of the next sample and adds it to `drawn`, the number of samples that each source has given so
  /// far. Only integers are used, so there is no drift.
  size_t next(std::vector<int64_t>& drawn) const;

 private:
  std::vector<int64_t> weights_;
  int64_t total_ = 0;
};

}  // namespace athanor
