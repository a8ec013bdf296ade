#pragma once
// Sums over values for statistics, added where the values are: on the host in blocks of fixed size and in order, so
// that the number of threads does not change the bits.

#include "ops/tensor.h"

namespace athanor::ops {

/// The bins of a histogram that are the same for all values, so that counts can be added. There are two bins for each
/// factor of two: magnitudes from 2^e to 1.5 · 2^e, and from there to 2^(e + 1), for e from kLowest to kHighest − 1.
/// What is smaller counts as zero, what is larger in the outermost bin.
struct HistogramBins {
  static constexpr int kLowest = -40, kHighest = 10, kMagnitudes = 2 * (kHighest - kLowest);
  static constexpr int kBins =
      2 * kMagnitudes + 1;  ///< negative from large to small, zero, positive from small to large

  /// Returns the bin of a value, which is not NaN.
  static int bin_of(float value);
  /// Returns the end of a bin towards +∞.
  static double upper_edge(int bin);
};

/// Returns Σ x² of bf16 or fp32 values in any shape, fp64 without dims, where they are.
Tensor squares_of(const Tensor& x);

/// Returns Σ (after − before)² of fp32 [n], fp64 without dims, where they are.
Tensor squared_change(const Tensor& after, const Tensor& before);

/// Sets `sum`, fp32 without dims, to Σ x, which is not finite if a value is not: cheap, for values of any kind in any
/// shape where `sum` is.
void sum_into(const Tensor& x, Tensor sum);

/// Adds Σ x², Σ x and the counts of HistogramBins of `values`, fp32 [n], to `sums`, fp64 [2 + kBins] where they are; if
/// `sums` has one element, Σ x² alone. Values are not NaN.
void add_statistics(const Tensor& values, const Tensor& sums);

}  // namespace athanor::ops
