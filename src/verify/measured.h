#pragma once
// Compares a layout in bf16 with one rank in fp32, in relation to one rank in bf16.
//
// A bound from worst cases has to be a few tenths in bf16, and many errors in a computation are smaller. But the error
// of bf16 need not be bounded: one rank in bf16 shows it, for each tensor separately, on the same data. An error that a
// layout makes is added to that (noise_ratio). The run in fp32 that both are compared with shares no rounding with
// either, and its order of sums is one rank's: it sends nothing. The comparison in fp32 shows that it computes what a
// layout does.

#include <map>

#include "config/run_config.h"
#include "verify/compare.h"

namespace athanor::inline verify {

// The bound: how much larger than one rank's a layout's error may be by chance.
//
// Both errors are relative to the same run in fp32. If the layout is right, its error is another draw of the noise that
// one rank's error is a draw of: the ratio r of their norms is near 1, whatever the noise is, and the closer to 1 the
// more independent numbers an error has. Let X and Y be two sums, each of the squares of nu normal numbers of equal
// size. The chance of X > r^2 * Y is at most E exp(s * (X - r^2 * Y)) for every s > 0 (Chernoff); at the best s that is
// (2r / (1 + r^2))^nu = cosh(ln r)^-nu. Set equal to the chance that is allowed, this gives the bound
// r = exp(arcosh(chance^(-1 / nu))).

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
/// that it is multiplied into. So a matrix has not many more independent numbers than its narrower side. Measured in
/// right layouts (docs/verify.md), by the spread of the ratio's logarithm, 4 / nu: a 32-wide model has 20 to 1000, a
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

/// Adds up errors over data sets, so that each comparison has many numbers.
class MeasuredComparison {
 public:
  /// @param small  the layout's run. @param data_ranks  number of its data ranks. @param device  of its ranks.
  MeasuredComparison(const RunConfig& small, int data_ranks, c10::Device device = c10::kCPU);
  /// Adds the runs on one data set: the layout's and one rank's in bf16, one rank's in fp32.
  void add(const WholeTrace& layout, const WholeTrace& one, const WholeTrace& truth);

  /// The comparisons that failed. Measured ones are listed by name, since they count only if they fail on other data
  /// too (kChanceOnce); a value that must be equal, or that follows from the layout's own numbers, is a fault at once.
  struct Findings {
    Comparisons comparisons;  ///< all comparisons; its faults are only those that count at once
    /// For each measured comparison that failed, its name and the line that reports it; the one that is furthest beyond
    /// its bound comes first.
    std::vector<std::pair<std::string, std::string>> failed;
  };
  /// Returns the findings over all data sets; to be called once, last.
  Findings finish();

 private:
  void add_equal(const std::string& quantity, const std::string& name, int64_t step, bool equal, double error);
  void add_bounded(const Comparison& comparison, const std::string& step, bool measured);
  void add_numbers(int64_t step, const StepNumbers& layout, const StepNumbers& one, const StepNumbers& truth);
  void add_counts(int64_t step, const StepNumbers& layout, const StepNumbers& one, const StepNumbers& truth);
  /// @param kind  of the gradients, as WholeTrace::values takes it.
  void add_gradients(int64_t step, const char* kind, const char* quantity, const WholeTrace& layout,
                     const WholeTrace& one, const WholeTrace& truth);
  void compare_initial(const WholeTrace& layout, const WholeTrace& one, const WholeTrace& truth);

  struct Key {
    std::string quantity, name;
    auto operator<=>(const Key&) const = default;
  };
  RunConfig config_;
  Noise noise_;
  std::vector<ParameterSpec> inventory_;
  std::map<Key, PooledNoise> pooled_;
  std::map<std::string, Comparison> worst_;
  struct Failed {
    double share;
    std::string name, line;
  };
  std::vector<Failed> failed_;
  Findings found_;
};

}  // namespace athanor::inline verify
