#pragma once
// AdamW (Loshchilov and Hutter 2019) in one pass over flat memory: clip, moments, decay, master, rounded weight.

#include <cstdint>

#include "kernels/element.h"

namespace athanor::kernels {

struct AdamwStep {
  float lr, eps, weight_decay;
  double beta1, beta2;                       ///< double: 1 − 0.999 from an fp32 beta is off by 1.3e-5 of itself
  float bias_correction1, bias_correction2;  ///< 1 − betaᵗ
  float grad_scale;                          ///< of clipping, and of whatever gradients were scaled by
};

/// One step over n elements. `grad` is set to zero for the next step.
/// @return how many weights changed, as forward reads them.
int64_t adamw(const AdamwStep& step, float* master, float* exp_avg, float* exp_avg_sq, float* grad, int64_t n);

/// The same where the master is kept as its bf16 rounding and its lower bits (master.h): the fp32 result is the one
/// above, then stored.
int64_t adamw(const AdamwStep& step, Bf16* weight, uint16_t* master_low, float* exp_avg, float* exp_avg_sq, float* grad,
              int64_t n);

/// Σ x², exact squares added in double in the fixed order of the lanes.
double sum_of_squares(const float* x, int64_t n);

}  // namespace athanor::kernels
