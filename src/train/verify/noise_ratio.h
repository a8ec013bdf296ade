#pragma once
// How much noisier than one rank's a layout's error may be by chance.
//
// Both are held against the same run in fp32. Where the layout is right, its error is another draw of the noise that
// one rank's error is a draw of: their ratio is near 1, whatever the noise is, and comes closer to 1 the more
// independent numbers an error has. For two sums of nu squares of normal numbers of equal size the chance of
// X > r^2 * Y is at most E exp(s * (X - r^2 * Y)) for every s > 0 (Chernoff); at the best s that is
// (2r / (1 + r^2))^nu = cosh(ln r)^-nu. Set equal to the chance that is allowed: r = exp(arcosh(chance^(-1 / nu))).

#include "config/run_config.h"

namespace athanor {

/// A comparison that fails is made again on as many other data sets, and counts if it fails there too: one of 10^10
/// right ones does by chance, and a verification has some 10^3 to 10^4 of them.
inline constexpr double kChanceOnce = 1e-5;

/// The bound on the ratio of two errors' norms. @param freedom  independent numbers in each, 1 or more.
double noise_ratio(double freedom);

/// Independent numbers in the error of a gradient of so many elements.
///
/// Half of them at most, and no more than 16. An element's error is its own, but what a layer's input or output is off
/// by is shared by all of the gradients that it is multiplied into, so that a matrix has not many more than its
/// narrower side. Measured in right layouts (docs/verify.md), by the spread of the ratio's logarithm, 4 / nu: a
/// 32-wide model has 20 to 1000, a 6-wide one 6 to 12.
double freedom_of(int64_t elements, int64_t width);

/// The sums that are compared: of one tensor or number over steps and data sets.
class PooledNoise {
 public:
  /// One step on one data set. @param layout, one  squared errors. @param more  what the layout's own roundings add to
  /// one rank's. @param size  the square of what is off. @param freedom  independent numbers in each error.
  void add(double layout, double one, double more, double size, double freedom) {
    pool(layout, one + more, size, freedom, one + more);
  }
  /// Of single numbers, whose errors do not tell how large these are as a rule: each counts alike.
  void add_number(double layout, double one, double more, double size) { pool(layout, one + more, size, 1, 1); }

  /// Relative to the size; where that is nothing, as they are.
  double error() const { return relative(layout_); }
  double bound() const;

 private:
  void pool(double layout, double one, double size, double freedom, double weight);
  double relative(double square) const;

  double layout_ = 0, one_ = 0, size_ = 0, weights_ = 0, squared_weights_ = 0;
};

}  // namespace athanor
