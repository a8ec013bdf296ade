#pragma once
// How much larger than one rank's a layout's error may be by chance.
//
// Both errors are relative to the same run in fp32. If the layout is right, its error is another draw of the noise that
// one rank's error is a draw of: the ratio r of their norms is near 1, whatever the noise is, and the closer to 1 the
// more independent numbers an error has. Let X and Y be two sums, each of the squares of nu normal numbers of equal
// size. The chance of X > r^2 * Y is at most E exp(s * (X - r^2 * Y)) for every s > 0 (Chernoff); at the best s that is
// (2r / (1 + r^2))^nu = cosh(ln r)^-nu. Set equal to the chance that is allowed, this gives the bound
// r = exp(arcosh(chance^(-1 / nu))).

#include "config/run_config.h"

namespace athanor::inline verify {

/// The chance with which a comparison of a right layout may fail. A comparison that fails is repeated on as many other
/// data sets, and counts only if it fails there too. By chance that happens to one of 10^10 comparisons of right
/// layouts, and a verification has some 10^3 to 10^4 comparisons.
inline constexpr double kChanceOnce = 1e-5;

/// Returns the bound on the ratio of two errors' norms. @param freedom  independent numbers in each (nu), 1 or more.
double noise_ratio(double freedom);

/// Returns the number of independent numbers that is assumed for the error of a gradient with this number of elements:
/// half of the smallest of `elements`, `width` and 32. `width` is the hidden size.
///
/// Every element contributes a separate error, but the error of a layer's input or output is shared by all gradients
/// that it is multiplied into, so that a matrix has not many more independent numbers than its narrower side. Measured
/// in right layouts (docs/verify.md), by the spread of the ratio's logarithm, 4 / nu: a 32-wide model has 20 to 1000, a
/// 6-wide one 6 to 12.
double freedom_of(int64_t elements, int64_t width);

/// Adds up the squared errors of one tensor or number over steps and data sets, and compares the sums.
class PooledNoise {
 public:
  /// Adds one step on one data set.
  /// @param layout, one  squared norms of the layout's and of one rank's error.
  /// @param more  what the layout's additional roundings add to the square of one rank's error.
  /// @param size  squared norm of the tensor that has the errors.
  /// @param freedom  independent numbers in each error.
  void add(double layout, double one, double more, double size, double freedom) {
    pool(layout, one + more, size, freedom, one + more);
  }
  /// Adds a single number, whose error does not show how large its errors usually are: each number has equal weight.
  void add_number(double layout, double one, double more, double size) { pool(layout, one + more, size, 1, 1); }

  /// Returns the layout's error, relative to the size; the absolute error if the size is 0.
  double error() const { return relative(layout_); }
  /// Returns the largest value that error() may have if the layout is right.
  double bound() const;

 private:
  void pool(double layout, double one, double size, double freedom, double weight);
  double relative(double square) const;

  double layout_ = 0, one_ = 0, size_ = 0, weights_ = 0, squared_weights_ = 0;
};

}  // namespace athanor::inline verify
