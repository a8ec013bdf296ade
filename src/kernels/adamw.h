#pragma once
// AdamW (Loshchilov and Hutter 2019) in one pass over flat memory: clip, moments, decay, master, rounded weight.

#include <cstdint>

#include "kernels/element.h"

namespace athanor::kernels {

struct AdamwStep {
  float lr, eps, weight_decay;
  double beta1, beta2;  ///< double, since 1 − 0.999 from an fp32 beta has a relative error of 1.3e-5
  float bias_correction1, bias_correction2;  ///< 1 − betaᵗ in update t, counted from 1
  float grad_scale;                          ///< factor of the gradient: clipping and any other scale together
};

/// Updates master and moments of n elements in place, with decoupled decay first: master · (1 − lr · weight_decay).
/// `grad` is set to zero for the next step.
/// @return the number of weights that changed, in the type that forward reads: fp32 here, bf16 in the form below.
int64_t adamw(const AdamwStep& step, float* master, float* exp_avg, float* exp_avg_sq, float* grad, int64_t n);

/// As above, for a master that is kept as its bf16 rounding and its lower bits (master.h). The fp32 result is the same,
/// and is then stored in that form.
int64_t adamw(const AdamwStep& step, Bf16* weight, uint16_t* master_low, float* exp_avg, float* exp_avg_sq, float* grad,
              int64_t n);

/// Returns Σ x². The squares are exact in double, and are added in double in the fixed order of the lanes (element.h).
double sum_of_squares(const float* x, int64_t n);

}  // namespace athanor::kernels
