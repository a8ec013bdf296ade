#pragma once
// Statistics of each layer in one step, and the histograms of its weights and gradients.

#include <array>
#include <cstdint>
#include <vector>

#include "ops/value_statistics.h"

namespace athanor::inline metrics {

/// A histogram whose bins are the same for every layer, step and rank, so that counts can be added.
struct Histogram : ops::HistogramBins {
  double sum = 0, sum_of_squares = 0;
  std::vector<double> counts;  ///< kBins
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
