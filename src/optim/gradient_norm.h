#pragma once
// The norm of the gradient over all parameters, whichever rank holds them.

#include <span>
#include <vector>

#include "parallel/parameters.h"
#include "parallel/shard_plan.h"

namespace athanor {

/// Returns the sum of squares of flat fp32 gradients in fp64. It runs over fixed blocks in order, whatever the number
/// of threads.
double sum_of_squares(const Tensor& flat_grad, std::span<const FlatRange> ranges);

/// Returns the Euclidean norm of flat fp32 gradients.
double gradient_norm(const Tensor& flat_grad);

struct GradientNorms {
  double total = 0;
  // Both are empty for one rank.
  /// Norms of the canonical parts of each data rank, with all its tensor and pipeline ranks; together they make the
  /// total.
  std::vector<double> ranks;
  std::vector<double> experts;  ///< norm of the experts of each expert rank; empty if all ranks hold all experts
};

/// Returns the norms of gradients that GradientReducer has summed. Each element counts once, from the rank whose
/// canonical part has it, so sharding changes the norm by no more than fp64's rounding. Collective over the tensor and
/// pipeline ranks, then the data ranks: an all-reduce and an all-gather of two numbers.
GradientNorms gradient_norms(const ParameterStore& parameters, const ShardPlan& plan);

}  // namespace athanor
