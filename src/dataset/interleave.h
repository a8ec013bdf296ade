#pragma once
// Chooses the source of each sample among several, so that every source keeps its share at every moment.
//
// Source: Tijdeman, "The chairman assignment problem", Discrete Mathematics 32 (1980). When sample n (from 1) is drawn,
// the lag of source i is share_i n - drawn_i. Only sources with a lag of at least 1 / (2k - 2) are drawn: of these
// the one whose lag would be the first to reach 1 - 1 / (2k - 2) if it were not drawn. After any n samples
//
//   |drawn_i - share_i n| <= 1 - 1 / (2k - 2)   for k >= 2 sources,
//
// which is the best possible bound. A window of n samples is the difference of two beginnings of the order: its count
// differs from share_i n by at most 1 for two sources and by less than 2 for more, for which no order can guarantee 1.

#include <cstddef>
#include <cstdint>
#include <vector>

namespace athanor::inline dataset {

class Interleave {
 public:
  /// @param weights  finite and above 0, at least one; only their ratios count.
  /// @throws ConfigError for other weights.
  explicit Interleave(const std::vector<double>& weights);

  /// Returns the source's weight as a part of 1.
  double share(size_t source) const;
  /// The weights as integers with a sum of about 2^50, each at least 1: they can be stored exactly, and equal ratios
  /// give equal integers.
  const std::vector<int64_t>& weights() const { return weights_; }

  /// Returns the source of the next sample and increments its count in `drawn`, the number of samples that each source
  /// has given so far. Only integers are used, so there is no drift.
  size_t next(std::vector<int64_t>& drawn) const;

  /// Returns the most that a source can have given after n samples from the beginning of the order: the bound above. It
  /// is exact for one source, and for a share of n that is a whole number.
  int64_t most_drawn(size_t source, int64_t n) const;

 private:
  int64_t parts() const;

  std::vector<int64_t> weights_;
  int64_t total_ = 0;
};

}  // namespace athanor::inline dataset
