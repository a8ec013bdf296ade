#pragma once
// Statistics of each layer in one step, and the histograms of its weights and gradients.

#include <array>
#include <cstdint>
#include <vector>

namespace athanor::inline metrics {

/// A histogram whose bins are the same for every layer, step and rank, so that counts can be added. There are two bins
/// for each factor of two: magnitudes from 2^e to 1.5 · 2^e, and from there to 2^(e + 1), for e from kLowest to
/// kHighest − 1. What is smaller counts as zero, what is larger in the outermost bin.
struct Histogram {
  static constexpr int kLowest = -40, kHighest = 10, kMagnitudes = 2 * (kHighest - kLowest);
  static constexpr int kBins =
      2 * kMagnitudes + 1;  ///< negative from large to small, zero, positive from small to large

  double sum = 0, sum_of_squares = 0;
  std::vector<double> counts;  ///< kBins

  /// Returns the bin of a value, which is not NaN.
  static int bin_of(float value);
  /// Returns the end of a bin towards +∞.
  static double upper_edge(int bin);
};

/// Rows of the lists that have a value for each part of the model: the embedding, each layer, and the output (final
/// norm and output layer).
struct LayerMetrics {
  /// One for each row: L2 norms over its parameters. Gradients are those before clipping, weights those (fp32) that the
  /// update changed, and the update is the difference that it made.
  std::vector<double> grad_norm, weight_norm, update_norm;
  std::vector<double> activation_rms;         ///< by layer: root mean square of the residual stream after it
  std::vector<double> attention_logit_max;    ///< by layer: the largest q · k / √head_dim of any token and head
  std::vector<Histogram> gradients, weights;  ///< one for each row; empty if none were asked for
};

}  // namespace athanor::inline metrics
