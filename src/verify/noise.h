#pragma once
// Bounds on how far apart two correct computations of one step may be because they round differently.
//
// A computation is a chain of operations. An operation with inner length n (a product, a sum) makes n roundings. A
// rounding is about uniform in ±u of its number's size and independent of the others, so its variance is u² / 3. The
// variance of the chain's relative error is the sum over all of its operations (the probabilistic analysis of Higham
// and Mary, SIAM J. Sci. Comput. 2019, in its form with variances). u is 2^-24 for additions (always fp32), and 2^-24
// or 2^-8 for stored results (fp32 or bf16). Chains are followed through the small model's own shapes: forward,
// backward (the same products transposed), the sum over the batch's tokens, the sums over ranks. If n tensor ranks
// share a product, each rounds its part before it is sent, and each of the log2(n) sums is rounded after.
//
// On devices the libraries add over n ranks in an order of theirs, and round after each of up to n − 1 additions. All
// other sums are in fp32 in some order, which the bounds do not depend on. One result more is stored: the gradient of
// an expert's weight, for each microbatch, before it is added in fp32 (ops/device/grouped.cpp). Attention may store its
// probabilities, in forward and in backward, and their gradients, which a CPU need not store.
//
// Errors are relative to a tensor's Euclidean norm. A linear map, a norm or a sum passes them on with a gain of about
// 1. A product of two computed factors (attention's weights and values, the gated unit, an expert's weight) adds the
// errors of both. Any path through a layer contains at most two such products: kGain = 2 = √2 · √2. Both of the runs
// that are compared have errors: another √2. The bound is kDeviations = 7 standard deviations: a normal number is
// beyond it in 2.6e-12 of all cases, so that of 10^4 comparisons one fails by chance in 3 of 10^8 verifications.
//
// A wrong computation, in contrast to a rounded one, has an error near 1 (a sum not taken, taken twice, over other
// ranks).

#include <c10/core/Device.h>

#include "config/run_config.h"
#include "verify/reference.h"

namespace athanor::inline verify {

class Noise {
 public:
  /// @param small  the layout's run: its shapes, types and tensor ranks determine the bounds.
  /// @param data_ranks  number of ranks over which gradients are summed in train.reduce_dtype; 1: no sum.
  /// @param reference  the reference of the comparison: kPortable makes no errors, but also has exact angles.
  /// @param device  of the ranks of the layout's run; the reference is on the CPU in any case.
  Noise(const RunConfig& small, int data_ranks, Reference reference = Reference::kOneRank,
        c10::Device device = c10::kCPU);

  /// Bounds on the relative differences of the loss and of each gradient, if both runs have the same parameters.
  double loss() const { return loss_; }
  double gradient() const { return gradient_; }
  /// Returns the standard deviation of the difference of the logits, relative to their size.
  double logits() const { return loss_ / kDeviations; }
  /// Returns the mean square of a layout's errors as a multiple of one rank's: tensor ranks round more often.
  double layout_factor() const { return layout_factor_; }
  /// Returns the mean square of the error, relative to a gradient's, that its sums over ranks in bf16 cause; 0 if the
  /// sums are in fp32.
  double reduction_variance() const { return reduction_variance_; }

 private:
  static constexpr double kDeviations = 7;
  double loss_ = 0, gradient_ = 0;
  double layout_factor_ = 1, reduction_variance_ = 0;
};

}  // namespace athanor::inline verify
