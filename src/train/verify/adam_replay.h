#pragma once
// Computes in double precision, without buckets, shards or kernels, what AdamW makes of the gradients that a run
// recorded.
//
// A run's parameters follow from its own gradients except for fp32's rounding, in whatever type these were computed. So
// an update that some rank makes from other gradients, twice or not at all, is seen in bf16 as clearly as in fp32.

#include <vector>

#include "arch/inventory.h"
#include "config/run_config.h"

namespace athanor {

/// The replay of one parameter.
class AdamReplay {
 public:
  /// @param master  the initial master weights.
  AdamReplay(const OptimizerConfig& config, const ParameterSpec& spec, const std::vector<float>& master);

  /// Makes update `step` (1-based). @param grad_norm  norm of the whole model, by which gradients are clipped.
  void add_step(int64_t step, double lr, double grad_norm, const std::vector<float>& grad);

  const std::vector<double>& master() const { return master_; }
  /// Returns for each element a bound on the rounding errors of fp32, summed over the steps.
  const std::vector<double>& bound() const { return bound_; }

 private:
  OptimizerConfig config_;
  double lr_scale_ = 1;
  std::vector<double> master_, exp_avg_, exp_avg_sq_, bound_;
};

}  // namespace athanor
