#pragma once
// The gradient noise scale: the batch size above which a larger batch stops paying off.
//
// With G the gradient of the loss and Σ the covariance of the gradient of one sequence, the simple noise scale is
// B_simple = tr(Σ) / |G|², in sequences. Source: McCandlish et al. 2018, "An Empirical Model of Large-Batch Training",
// equation 2.9 and appendix A.1, which estimates both from gradients over two batch sizes. Here the small batches are
// the parts whose sum is the step's gradient: those of the data ranks.

#include <cstdint>
#include <span>

namespace athanor::inline optim {

/// Sums of squares over a group of parameters whose gradient g is the sum of those of n parts of the batch, of equally
/// many sequences: g = g_1 + … + g_n.
struct PartSquares {
  int64_t num_parts = 1;
  double parts = 0;  ///< Σ |g_i|²
  double whole = 0;  ///< |g|²
};

/// Unbiased estimates from one step. Either may be below zero by chance, so they are averaged over steps before they
/// are divided.
struct NoiseEstimate {
  double gradient_squared = 0;  ///< estimates |G|²
  double variance = 0;          ///< estimates tr(Σ), for one sequence
};

/// Returns the sums of the estimates of each group. A part has the mean gradient of its B / n sequences, over n. So
///   E|g|² = |G|² + tr(Σ) / B  and  E Σ|g_i|² = |G|² / n + tr(Σ) / B.
/// These are solved for |G|² and tr(Σ). A group of one part tells nothing, and is left out.
/// @param sequences  B, the sequences of the step.
NoiseEstimate estimate_noise(std::span<const PartSquares> groups, int64_t sequences);

/// The exponential means of the estimates of a run's steps, and their quotient.
class NoiseScale {
 public:
  /// The weight of a new estimate. The first 1 / kNewest estimates are averaged evenly.
  static constexpr double kNewest = 0.01;

  void add(const NoiseEstimate& estimate);
  /// Returns B_simple, in sequences; NaN while the mean of |G|² is not above zero.
  double value() const;

 private:
  NoiseEstimate mean_;
  int64_t num_ = 0;
};

}  // namespace athanor::inline optim
