#pragma once
// The norm of the gradient over all parameters, whichever rank holds them, and the factor that clips by it.

#include <vector>

#include "config/run_config.h"
#include "ops/tensor.h"
#include "parallel/parameters.h"
#include "parallel/shard_plan.h"

namespace athanor::inline optim {

/// Euclidean norms of gradients by rank, before clipping.
struct RankNorms {
  /// By data rank: the norm of the canonical parts of its tensor and pipeline ranks. The squares add up to that of the
  /// gradient norm. Empty for a world of one rank.
  std::vector<double> ranks;
  /// By expert rank: the norm of the experts that it holds, in all layers. Empty if all ranks hold all experts.
  std::vector<double> experts;

  /// More norms than this are not listed in metrics.jsonl: only the least, the largest and their ranks are.
  static constexpr size_t kMostListed = 32;

  /// Returns the largest norm divided by the smallest: infinity if one is zero and another is not, 1 if there are none.
  static double imbalance(const std::vector<double>& norms);
};

/// Norms where the gradients are.
struct GradientSquares {
  Tensor norm;      ///< fp64, no dim: the norm over all parameters
  Tensor of_ranks;  ///< fp64 [data ranks, 2]: sums of squares of the canonical parts of the dense parameters, and of
                    ///< the experts; undefined for a world of one rank
};

/// Computes the norm of gradients that GradientReducer has summed. Each element counts once, from the rank whose
/// canonical part has it, so sharding changes the norm by no more than fp64's rounding. Every rank gets the same. The
/// host does not wait for a device. Collective: an all-reduce of two numbers over kModel, then an all-gather of two
/// numbers over kData.
GradientSquares gradient_squares(const ParameterStore& parameters, const ShardPlan& plan);

/// Returns the norms by rank from a result that is on the host.
RankNorms norms_by_rank(const GradientSquares& squares, const ShardPlan& plan);

/// Returns the factor by which gradients are multiplied: min(1, max_grad_norm / (grad_norm + 1e-6)). It is 1 if
/// max_grad_norm is 0, or if clip_after_warmup is set and the update belongs to the warm-up.
/// @param grad_norm   norm over the whole model, before clipping; finite.
/// @param warming_up  is_warming_up (optim/schedule.h).
double clip_scale(const OptimizerConfig& config, double grad_norm, bool warming_up);
/// The same from a norm on a device: fp64, one element, there.
Tensor clip_scale(const OptimizerConfig& config, const Tensor& grad_norm, bool warming_up);

}  // namespace athanor::inline optim
