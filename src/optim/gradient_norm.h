#pragma once
// The norm of the gradient over all parameters, whichever rank holds them.

#include <span>
#include <vector>

#include "parallel/parameters.h"
#include "parallel/shard_plan.h"

namespace athanor::inline optim {

/// Returns the sum of squares of the elements of `flat_grad` (fp32, one dim) that lie in `ranges`, in fp64. The sums of
/// blocks of fixed size are added in order, so that the number of threads does not change the bits.
double sum_of_squares(const Tensor& flat_grad, std::span<const FlatRange> ranges);

/// Returns the Euclidean norm of all elements of `flat_grad` (fp32, one dim), computed in the same way.
double gradient_norm(const Tensor& flat_grad);

/// Euclidean norms of gradients, before clipping.
struct GradientNorms {
  double total = 0;  ///< over all parameters of the model
  /// By data rank: the norm of the canonical parts of its tensor and pipeline ranks. The squares add up to that of
  /// `total`. Empty for a world of one rank.
  std::vector<double> ranks;
  /// By expert rank: the norm of the experts that it holds, in all layers. Empty if all ranks hold all experts.
  std::vector<double> experts;
};

/// Gradient norms by rank, before clipping (GradientNorms).
struct RankNorms {
  /// by data rank: the norm of the gradients that it alone counts; the squares add up to that of the gradient norm
  std::vector<double> ranks;
  std::vector<double> experts;  ///< by expert rank: norm of its experts; empty if all ranks hold all experts

  /// More norms than this are not listed in metrics.jsonl: only the least, the largest and their ranks are.
  static constexpr size_t kMostListed = 32;

  /// Returns the largest norm divided by the smallest: infinity if one is zero and another is not, 1 if there are none.
  static double imbalance(const std::vector<double>& norms);
};

/// Norms on the way from a device.
struct GradientNormsOnDevice {
  Tensor total;    ///< fp64, no dim
  Tensor squares;  ///< fp64 [data ranks, 2]: sums of squares of the canonical parts of the dense parameters, and of the
                   ///< experts; undefined for a world of one rank
};

/// What gradient_norms computes, of gradients on a device, there. The host does not wait. Collective as gradient_norms,
/// over the groups of the device.
GradientNormsOnDevice gradient_norms_on_device(const ParameterStore& parameters, const ShardPlan& plan);

/// Returns the norms from the `squares` of GradientNormsOnDevice, on the host.
GradientNorms norms_of(const Tensor& squares, const ShardPlan& plan);

/// Returns the norms of gradients that GradientReducer has summed. Each element counts once, from the rank whose
/// canonical part has it, so sharding changes the norm by no more than fp64's rounding. Every rank gets the same.
/// Collective: an all-reduce of two numbers over kModel, then an all-gather of two numbers over kData.
GradientNorms gradient_norms(const ParameterStore& parameters, const ShardPlan& plan);

}  // namespace athanor::inline optim
