#pragma once
// The elementwise parts of SGD, LAMB, Sophia-G and Muon: one pass over flat memory each. AdamW is in adamw.h.
//
// Decay is decoupled everywhere: master · (1 − lr · weight_decay), before the step. docs/optimizers.md has the formulas
// with their sources.

#include <cstdint>

#include "kernels/element.h"

namespace athanor::kernels {

/// n masters: `whole` in fp32, or in bf16 the weight that forward reads and its lower bits (master.h).
struct Masters {
  float* whole = nullptr;
  Bf16* weight = nullptr;
  uint16_t* low = nullptr;

  Masters at(int64_t i) const { return at(i, i); }
  /// @param low_i  the element of the lower bits, where they begin elsewhere.
  Masters at(int64_t i, int64_t low_i) const {
    return whole ? Masters{whole + i, nullptr, nullptr} : Masters{nullptr, weight + i, low + low_i};
  }
};

struct SgdStep {
  float lr, weight_decay, momentum, grad_scale;
  bool nesterov;
};
/// Updates momentum and masters: m ← momentum · m + g; the step is m, or g + momentum · m with `nesterov`.
/// `grad` is set to zero. @return the number of weights that changed, as forward reads them.
int64_t sgd(const SgdStep& step, const Masters& masters, float* momentum, float* grad, int64_t n);

struct LambStep {
  float eps, weight_decay;
  double beta1, beta2;
  float bias_correction1, bias_correction2;  ///< 1 − betaᵗ in update t, counted from 1
  float grad_scale;
};
struct LambSums {
  double weights = 0, directions = 0;  ///< sums of squares
};
/// Updates the moments, and replaces `grad` by the direction m̂ / (√v̂ + eps) + weight_decay · master.
/// @return the sums over these elements; in double, in the fixed order of the lanes (element.h).
LambSums lamb_direction(const LambStep& step, const Masters& masters, float* exp_avg, float* exp_avg_sq, float* grad,
                        int64_t n);

struct SophiaStep {
  float lr, weight_decay, beta1, grad_scale;
  float rho;  ///< the mean gradient is divided by this times the Hessian
};
struct SophiaCounts {
  int64_t changed = 0;  ///< weights that changed, as forward reads them
  int64_t clipped = 0;  ///< elements whose step was clipped to 1
};
/// Updates the mean gradient and the masters: the step is sign(m) · min(|m| / (rho · h + 1e-15), 1). `grad` is set to
/// zero.
SophiaCounts sophia(const SophiaStep& step, const Masters& masters, float* exp_avg, const float* hessian, float* grad,
                    int64_t n);

/// Adds the estimate tokens · g² of the Hessian to its mean: h ← beta · h + (1 − beta) · tokens · g². There g is the
/// gradient of a mean over `tokens` drawn labels. g is multiplied first: g² alone may underflow.
void add_squares(float beta, float tokens, const float* grad, float* hessian, int64_t n);

struct MomentumStep {
  float momentum, grad_scale;
  bool nesterov;
};
/// Updates momentum, m ← m + (1 − momentum) (g − m), and replaces `grad` by m, or by g + momentum · (m − g) with
/// `nesterov`.
void momentum_direction(const MomentumStep& step, float* momentum, float* grad, int64_t n);

/// Sets master ← master · keep − rate · direction, and then `direction` to zero.
/// @return the number of weights that changed, as forward reads them.
int64_t subtract(float keep, float rate, const Masters& masters, float* direction, int64_t n);

}  // namespace athanor::kernels
