#pragma once
// The gradient's norm over all parameters, whichever rank holds them.

#include <span>
#include <vector>

#include "parallel/parameters.h"
#include "parallel/shard_plan.h"

namespace athanor {

/// Sum of squares of flat fp32 gradients in fp64. It runs over fixed blocks in order, whatever the threads.
double sum_of_squares(const Tensor& flat_grad, std::span<const FlatRange> ranges);

/// Euclidean norm of flat fp32 gradients.
double gradient_norm(const Tensor& flat_grad);

struct GradientNorms {
  double total = 0;
  // Empty for one rank:
  std::vector<double> ranks;    ///< of what is each data rank's alone, with all its tensor and pipeline ranks; together
                                ///< they make the total
  std::vector<double> experts;  ///< of the experts of each expert rank; empty where all ranks hold all experts
};

/// Of gradients that GradientReducer has summed. Each element counts once, from the rank whose unique part it is in, so
/// that no sharding changes the norm beyond fp64's rounding. Collective over the tensor and pipeline ranks, then the
/// data ranks: an all-reduce and an all-gather of two numbers.
GradientNorms gradient_norms(const ParameterStore& parameters, const ShardPlan& plan);

}  // namespace athanor
