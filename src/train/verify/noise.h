#pragma once
// How far apart two correct computations of one step may lie, because they round differently.
//
// A computation is a chain of operations. One with inner length n (a product's, a sum's) makes n roundings; a rounding
// is about uniform in ±u of its number's size, and independent of the others, so its variance is u² / 3 and that of the
// chain's relative error is the sum over all of its operations (the probabilistic analysis of Higham and Mary, SIAM J.
// Sci. Comput. 2019, in its form with variances). u is 2^-24 where we add up (always fp32) and 2^-24 or 2^-8 where a
// result is stored (fp32 or bf16). Chains are followed through the small model's own shapes: forward, backward (the
// same products transposed), the sum over the batch's tokens, the sums over ranks. Where n tensor ranks share a
// product, each rounds its part before it travels, and each of the log2(n) sums is rounded after.
//
// Errors are relative to a tensor's Euclidean norm. A linear map, a norm or a sum hands them on with a gain of about 1;
// a product of two computed factors (attention's weights and values, the gated unit, an expert's weight) adds both of
// theirs, and any path through a layer meets at most two: kGain = 2 = √2 · √2. Two runs that are compared each have
// errors of their own: another √2. The bound is kDeviations = 7 standard deviations: a normal number lies beyond in
// 2.6e-12 of all cases, so that of 10^4 comparisons one fails by chance in 4 of 10^8 verifications.
//
// What is wrong rather than rounded (a sum not taken, taken twice, over other ranks) is an error near 1.

#include "config/run_config.h"
#include "train/verify/reference.h"

namespace athanor {

class Noise {
 public:
  /// @param data_ranks  over which gradients are summed in train.reduce_dtype; 1: none.
  /// @param reference  what it is held against: kPortable has no errors of its own, but has exact angles as well.
  Noise(const RunConfig& small, int data_ranks, Reference reference = Reference::kOneRank);

  /// Bounds on relative differences where both runs have the same parameters.
  double loss() const { return loss_; }
  double gradient() const { return gradient_; }
  /// The mean square of a layout's errors as a multiple of one rank's: tensor ranks round more often.
  double layout_factor() const { return layout_factor_; }
  /// The mean square, relative to a gradient's, of what its sums over ranks in bf16 round; 0 where they are in fp32.
  double reduction_variance() const { return reduction_variance_; }

 private:
  static constexpr double kDeviations = 7;
  double loss_ = 0, gradient_ = 0;
  double layout_factor_ = 1, reduction_variance_ = 0;
};

}  // namespace athanor
